# In the virtual machine whose power is cut: a cluster on its disk, and writers that say what was acknowledged. First
# everything is looked for that was acknowledged before, then it goes on from there.
#
# Each transaction writes two counters and a key of its own, of two groups. Lines for the host begin with `power:`.
writers=$1
store=$2
export SKEIN_DIR=/disk/cluster
mkdir /disk
mount -t ext4 /dev/vda /disk || { echo 'power: failed: no disk'; exit 1; }
fail() {
    echo "power: failed: $*"
    ./skein status
    tail -n 20 $SKEIN_DIR/*.log
    ls -l $SKEIN_DIR $SKEIN_DIR/*.data
    exit 1
}
cat >small.toml <<END_OF_FILE
[topology]
groups = 2
[tuning]
heartbeat_ms = 100
log_bytes = "1MiB"
[limits]
memory_bytes_max = "64MiB"
[node]
store = "$store"
END_OF_FILE
if [ -e $SKEIN_DIR ]; then
    ./skein up --detach 2>up.err || { cat up.err; fail 'it does not come back'; }
else
    ./skein up --detach --durability sync --config small.toml 2>up.err || { cat up.err; fail 'it does not start'; }
fi
./skein scan --timeout 60 >found || fail 'it cannot be read'
writer=0
while [ $writer -lt $writers ]; do
    acknowledged=$(sed -n "s/^$writer //p" acknowledged)
    left=$(sed -n "s/^left:$writer	//p" found)
    right=$(sed -n "s/^right:$writer	//p" found)
    [ "${left:-0}" = "${right:-0}" ] || fail "writer $writer: half of a transaction: $left and $right"
    [ "${left:-0}" -ge "$acknowledged" ] || fail "writer $writer: $acknowledged was acknowledged, and ${left:-0} is there"
    keys=$(grep -c "^key:$writer:" found)
    [ "$keys" = "${left:-0}" ] || fail "writer $writer: $keys of $left keys are there"
    echo "power: found $writer ${left:-0}"
    (
        i=${left:-0}
        while i=$((i + 1)); do
            ./skein txn --timeout 60 - >/dev/null 2>txn.err <<END_OF_FILE || fail "a write failed: $(cat txn.err)"
{"then": [{"put": "left:$writer", "value": "$i"}, {"put": "right:$writer", "value": "$i"},
          {"put": "key:$writer:$i", "value": "$i"}]}
END_OF_FILE
            echo "power: acknowledged $writer $i"
        done
    ) &
    writer=$((writer + 1))
done
echo 'power: writing'
wait
