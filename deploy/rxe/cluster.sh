# In the virtual machine: three nodes on verbs, their leader killed, and a moment of YCSB.
set -e
export SKEIN_DIR=/tmp/skein
# The machine has one slow processor for all of them: who is silent for a second may be alive.
cat >small.toml <<'END'
[topology]
groups = 1
[tuning]
heartbeat_ms = 50
log_bytes = "1MiB"
[limits]
memory_bytes_max = "64MiB"
END
./skein doctor || true
./skein up --detach --fabric verbs --durability memory --config small.toml 2>up.err || { cat up.err; exit 1; }
./skein put apple red
[ "$(./skein get apple)" = red ]
# The first view's first member leads at first.
./skein admin kill 0
./skein put pear green
[ "$(./skein get apple)" = red ]
[ "$(./skein get pear)" = green ]
# A client that sees no card is served over tcp.
unshare -m sh -c '
    mount -t tmpfs none /sys/class/infiniband && ./skein -v get pear 2>client.err && ./skein put fig blue
' | grep -x green || { cat client.err; exit 1; }
grep -q "no RDMA card here" client.err
[ "$(./skein get fig)" = blue ]
./skein bench ycsb --workload a --records 200 --clients 4 --duration 3 >bench.txt 2>bench.err || { cat bench.err; exit 1; }
cat bench.txt
./skein status || true
./skein down --yes
