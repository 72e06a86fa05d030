# In one of three virtual machines: a node on verbs. The first is the leader's, and stops; the last
# one's clients see to it that the others go on.
host=$1
cat >cluster.toml <<'END'
[topology]
groups = 1
[network]
fabric = "verbs"
cluster = "geese"
addresses = ["10.9.0.1:7400", "10.9.0.2:7400", "10.9.0.3:7400"]
encryption = "never"
[tuning]
heartbeat_ms = 100
log_bytes = "1MiB"
[limits]
memory_bytes_max = "64MiB"
END
skein() {
    ./skein --dir cluster.toml "$@"
}
# patiently COMMAND…: again and again, for as long as three emulated machines may take.
patiently() {
    tries=0
    until "$@" 2>said; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { cat said; exit 1; }
        sleep 1
    done
}
# says KEY VALUE: whether that is what is stored.
says() {
    [ "$(skein get "$1")" = "$2" ]
}
./skein --dir here init --config cluster.toml || exit 1
./skein --dir here node --index $((host - 1)) 2>node.log &
case $host in
1)
    patiently says state filled
    echo 'the leader stops'
    exit 0
    ;;
2)
    patiently says state done
    ;;
3)
    patiently skein put state filled
    sleep 8
    patiently skein put apple red
    says apple red || exit 1
    skein bench ycsb --workload a --records 50 --clients 2 --duration 3 --warmup 0 >bench.txt 2>said ||
        { cat said; exit 1; }
    cat bench.txt
    patiently skein put state done
    # Half of a quorum, until the other machine has seen it.
    sleep 10
    ;;
esac
