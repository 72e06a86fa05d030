# In the virtual machine: the conformance suite on the verbs, with real processes.
grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state || exit 2
./conformance on_verbs card --test-threads=1
