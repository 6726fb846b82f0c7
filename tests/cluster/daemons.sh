# shellcheck shell=bash disable=SC2034  # what it sets is read by up
# The daemons: for each how it is started, and how one knows that it answers. start_NAME gets the path of its log.

# ensure_daemon NAME: starts it unless it lives, and waits until it answers.
ensure_daemon() {
    local log
    log=$(daemon_files "$1").log
    detail="running"
    if ! daemon_pid "$1"; then
        blame=$log detail="starting"
        # 3>&-: a daemon that holds the terminal keeps whoever reads our output waiting.
        "start_$1" "$log" 3>&-
        changed
        detail="started"
        wait_until 30 daemon_pid "$1" || fail "started, but did not stay" "$log"
    fi
    wait_until 60 answers_or_died "$1" || true
    "answers_$1" || fail "$detail, but does not answer" "$log"
    detail+=", pid $(daemon_pid "$1")"
}

answers_or_died() { "answers_$1" || ! daemon_pid "$1"; }

start_munged() {
    local dir=$STATE/munged
    [[ -s $dir/key ]] || install -m 400 -o munge -g munge <(head -c 1024 /dev/urandom) "$dir/key"
    runuser -u munge -- munged --key-file="$dir/key" --socket="$dir/socket" --pid-file="$dir/munged.pid" \
        --seed-file="$dir/seed" --log-file="$1"
}
answers_munged() { munge --no-input --socket="$STATE/munged/socket" | unmunge --socket="$STATE/munged/socket"; }

start_mariadbd() {
    local conf=$STATE/etc/mariadb.cnf data=$STATE/mariadbd/data
    if [[ ! -d $data ]]; then
        rm -rf "$data.part"
        mariadb-install-db --defaults-file="$conf" --datadir="$data.part" \
            --auth-root-authentication-method=socket --skip-test-db
        mv "$data.part" "$data"
    fi
    setsid mariadbd --defaults-file="$conf" </dev/null >>"$1" 2>&1 &
}
answers_mariadbd() { mariadb-admin --defaults-file="$STATE/etc/mariadb.cnf" ping; }

start_slurmdbd() { MYSQL_UNIX_PORT=$STATE/mariadbd/socket slurmdbd; }
answers_slurmdbd() { sacctmgr --noheader list cluster; }

start_slurmctld() { slurmctld; }
answers_slurmctld() { scontrol ping | grep 'is UP'; }

start_slurmd() { slurmd; }
answers_slurmd() { node_is_up "$(hostname -s)"; }

start_slurmd-spare() { slurmd -N spare; }
answers_slurmd-spare() { node_is_up spare; }

node_is_up() { sinfo --noheader --Node --nodes "$1" --format %T | grep -E '^(idle|mixed|allocated|completing)$'; }

ensure_accounts() {
    detail="account default: root $CLUSTER_USER"
    accounts_known && return
    sacctmgr --immediate load "$HERE/accounts.cfg"
    accounts_known || fail "sacctmgr did not keep the accounts"
    changed
}

accounts_known() {
    local users
    users=$(sacctmgr --noheader --parsable2 list assoc cluster=assize account=default format=user)
    [[ $(sort <<<"$users" | xargs) == "$CLUSTER_USER root" ]]
}
