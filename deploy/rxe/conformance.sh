# In the virtual machine: the conformance suite on the verbs, with real processes, and the multicast on
# them.
set -e
grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state
./conformance on_verbs card --test-threads=1
./engines on_cards --test-threads=1 --nocapture
