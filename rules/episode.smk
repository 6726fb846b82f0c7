# One episode up to its snapshot. The three steps are one group: what prepare lays out may live on one node only.
# Where jobs share one allocation, what was begun comes before the next grade: a workspace lives for a limited time.
# A condition whose snapshots lie there already (solver: frozen) is made by no rule.


rule prepare:
    input:
        admission="results/{study}/admission/{benchmark}/{instance}.json",
    output:
        "results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/prepared.json",
    log:
        "results/{study}/logs/episodes/{benchmark}/{condition}/{instance}/{repeat}/prepare.log",
    wildcard_constraints:
        condition=STUDY.solved(),
    group:
        lambda wildcards: STUDY.group("episode", wildcards.benchmark)
    conda:
        "../envs/assize.yaml"
    threads: lambda wildcards: STUDY.episode_cpus(wildcards.benchmark)
    resources:
        mem_mb=lambda wildcards, attempt: STUDY.episode_memory_mb(
            wildcards.benchmark, attempt
        ),
        attempt=lambda wildcards, attempt: STUDY.attempt(attempt),
    params:
        terms=lambda wildcards: STUDY.terms_digest(wildcards.benchmark),
        work=lambda wildcards: STUDY.work_digest(
            wildcards.benchmark, wildcards.condition, wildcards.instance
        ),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py prepare --study results/{wildcards.study}/study.json"
        " --episode {wildcards.condition}/{wildcards.instance}/{wildcards.repeat}"
        " --attempt {resources.attempt} > {log} 2>&1"


rule solve:
    input:
        prepared="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/prepared.json",
    output:
        "results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/solved.json",
    log:
        "results/{study}/logs/episodes/{benchmark}/{condition}/{instance}/{repeat}/solve.log",
    wildcard_constraints:
        condition=STUDY.solved(),
    priority: 1
    group:
        lambda wildcards: STUDY.group("episode", wildcards.benchmark)
    conda:
        "../envs/assize.yaml"
    threads: lambda wildcards: STUDY.episode_cpus(wildcards.benchmark)
    resources:
        mem_mb=lambda wildcards, attempt: STUDY.episode_memory_mb(
            wildcards.benchmark, attempt
        ),
        runtime=lambda wildcards: STUDY.solve_minutes(wildcards.condition),
        attempt=lambda wildcards, attempt: STUDY.attempt(attempt),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py solve --study results/{wildcards.study}/study.json"
        " --episode {wildcards.condition}/{wildcards.instance}/{wildcards.repeat}"
        " --attempt {resources.attempt} > {log} 2>&1"


rule snapshot:
    input:
        solved="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/solved.json",
    output:
        archive="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/submission.tar.gz",
        record="results/{study}/episodes/{benchmark}/{condition}/{instance}/{repeat}/snapshot.json",
    log:
        "results/{study}/logs/episodes/{benchmark}/{condition}/{instance}/{repeat}/snapshot.log",
    wildcard_constraints:
        condition=STUDY.solved(),
    priority: 1
    group:
        lambda wildcards: STUDY.group("episode", wildcards.benchmark)
    conda:
        "../envs/assize.yaml"
    threads: lambda wildcards: STUDY.episode_cpus(wildcards.benchmark)
    resources:
        mem_mb=lambda wildcards, attempt: STUDY.episode_memory_mb(
            wildcards.benchmark, attempt
        ),
        attempt=lambda wildcards, attempt: STUDY.attempt(attempt),
    shell:
        "python scripts/{wildcards.benchmark}_adapter.py snapshot --study results/{wildcards.study}/study.json"
        " --episode {wildcards.condition}/{wildcards.instance}/{wildcards.repeat}"
        " --attempt {resources.attempt} > {log} 2>&1"
