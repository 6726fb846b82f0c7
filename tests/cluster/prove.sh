# shellcheck shell=bash disable=SC2034  # what it sets is read by up
# What up does with the cluster before it says that it is up.

prove_slurm() {
    detail=$(sinfo --noheader --format 'partition %P %D node, %T, %c CPUs, %m MB')
    [[ $detail == *'16 CPUs, 31744 MB' ]] || fail "$detail"
}

# completed JOB USER: accounting may hear of a job's end a moment after its submitter does.
completed() {
    [[ $(sacct --noheader --parsable2 --allocations --jobs "$1" --format User,State) == "$2|COMPLETED" ]]
}

prove_accounting() {
    wait_until 15 completed "$1" "$2" || fail "sacct does not show job $1 of $2 as COMPLETED" "$STATE/slurmdbd/slurmdbd.log"
    detail+=", sacct: $2 COMPLETED"
}

prove_srun() {
    local job
    # shellcheck disable=SC2016  # expanded inside the job
    job=$(as_user timeout 60 srun -c16 --mem=30720 bash -c 'hostname >&2 && echo $SLURM_JOB_ID') ||
        fail "srun failed" "$STATE/slurmctld/slurmctld.log"
    detail="job $job, 16 CPUs, 30720 MB"
    prove_accounting "$job" "$CLUSTER_USER"
}

prove_sbatch() {
    local job
    job=$(timeout 60 sbatch --wait --parsable --output=/dev/null --wrap=hostname) ||
        fail "sbatch failed" "$STATE/slurmctld/slurmctld.log"
    detail="job $job"
    prove_accounting "$job" root
}

# The proofs want the whole node: on a busy one they would wait for somebody's jobs, and prove nothing against it.
prove_jobs() {
    local busy
    busy=$(squeue --noheader --format %A | xargs)
    if [[ $busy ]]; then
        # Nothing failed, but the next up tries again.
        echo "--  not proven: srun and sbatch, since the cluster is busy with jobs $busy" >&3
    else
        run_stage srun prove_srun
        run_stage sbatch prove_sbatch
        touch "$PROVEN"
    fi
}

# prove_podman [as_user]
prove_podman() {
    detail=$("$@" podman run --rm --network none --pull never "$IMAGE" python3 --version)
}
