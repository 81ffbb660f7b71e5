# Runs boot.sh in namespaces of its own, and in a control group of its own: the groups of two machines must not be the same.
# $1, $2: as for boot.sh.
groups=$(findmnt --noheadings --output TARGET --types cgroup2 | head -n 1)
group="$groups/larder-trial-$$"
if [ -n "$groups" ] && mkdir "$group"; then
    echo $$ > "$group/cgroup.procs"
fi
unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net sh "$(dirname "$0")/boot.sh" "$1" "$2"
ended=$?
if [ -d "$group" ]; then
    echo $$ > "$groups/cgroup.procs"
    find "$group" -depth -type d -exec rmdir {} +
fi
exit $ended
