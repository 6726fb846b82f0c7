# shellcheck shell=bash disable=SC2034
# What up and down share: where things are, and how a daemon of ours is found, awaited and ended.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
STATE=${ASSIZE_CLUSTER_DIR:-/var/tmp/assize-cluster}
CACHE=${ASSIZE_CLUSTER_CACHE:-/var/tmp/assize-cluster-cache}
CLUSTER_USER=assize
SYSTEM_CONF=/etc/slurm/slurm.conf
# In the order in which they need each other. Each has a directory of this name with its pid file, log and state.
# slurmd-spare is the second node's slurmd: the two share a directory.
DAEMONS=(munged mariadbd slurmdbd slurmctld slurmd slurmd-spare)
# Its presence says that a directory is ours to write, and to remove.
MARKER=.assize-cluster

die() {
    printf 'FAILED  %s\n' "$*" >&2
    exit 1
}

# require_alone ARGS...: as root, and one up or down at a time.
require_alone() {
    ((EUID == 0)) || die "$0 must run as root"
    # -o: the daemons must not inherit the lock, or it would last as long as they do.
    [[ ${ASSIZE_CLUSTER_LOCKED:-} ]] ||
        ASSIZE_CLUSTER_LOCKED=1 exec flock -o /run/lock/assize-cluster.lock "$0" "$@"
    unset ASSIZE_CLUSTER_LOCKED
}

# wait_until SECONDS COMMAND...: false if the command never succeeded.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# live_pid PIDFILE NAME: prints the pid if that process lives and has that name. A pid file outlives its process, and
# the number is given to another one.
live_pid() {
    local pid
    [[ -s $1 ]] || return 1
    pid=$(<"$1")
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "$2" ]] && ! gone "$pid" && echo "$pid"
}

# gone PID: a zombie is gone too: it only waits for its parent to take notice.
gone() {
    ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status"
}

daemon_pid() {
    live_pid "$(daemon_files "$1").pid" "${1%-spare}"
}

# daemon_files NAME: the path of its pid file and log, without the suffix. A slurmd calls them by its node.
daemon_files() {
    case $1 in
        slurmd) echo "$STATE/slurmd/$(hostname -s)" ;;
        slurmd-spare) echo "$STATE/slurmd/spare" ;;
        *) echo "$STATE/$1/$1" ;;
    esac
}

# stop PID: asks, waits, insists.
stop() {
    kill "$1" 2>/dev/null || return 0
    wait_until 30 gone "$1" && return
    kill -KILL "$1" 2>/dev/null || return 0
    wait_until 10 gone "$1" || die "process $1 cannot be ended"
}

# stop_daemons: the last started first. Prints the names of those that were running.
stop_daemons() {
    local i name pid
    for ((i = ${#DAEMONS[@]} - 1; i >= 0; i--)); do
        name=${DAEMONS[i]}
        pid=$(daemon_pid "$name") || continue
        stop "$pid"
        echo "$name"
    done
}

# as_user COMMAND...: as the cluster's ordinary user, with the environment that the cluster's users are told to source.
as_user() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    runuser -u "$CLUSTER_USER" -- env -C / bash -c '. "$0" && exec "$@"' "$STATE/env" "$@"
}
