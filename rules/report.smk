# What an auditor reads, a part of every run: it costs seconds where grades cost hours, and `snakemake --report` then needs
# nothing else. The census is the source: a new grade makes a new census, and that a new report. Each item says in its
# caption what it shows; none is made per episode, which is what audit.html is for.


rule report_study:
    input:
        record="results/{study}/census/census.json",
        seal="results/{study}/census/SHA256SUMS",
    output:
        page="results/{study}/audit.html",
        scores=report(
            "results/{study}/report/scores.html",
            caption="../report/scores-table.rst",
            category="All benchmarks",
            labels={"shows": "1. What to read first, and all scores"},
        ),
        provenance=report(
            "results/{study}/report/provenance.html",
            caption="../report/provenance.rst",
            category="All benchmarks",
            labels={"shows": "2. Provenance: every pin, and what was checked"},
        ),
        official=report(
            "results/{study}/report/official.html",
            caption="../report/official.rst",
            category="All benchmarks",
            labels={"shows": "3. How official the grades are"},
        ),
        voids=report(
            "results/{study}/report/voids.html",
            caption="../report/voids.rst",
            category="All benchmarks",
            labels={"shows": "4. What was not judged, and why"},
        ),
        flags=report(
            "results/{study}/report/flags.html",
            caption="../report/flags.rst",
            category="All benchmarks",
            labels={"shows": "5. Flags: tampering, exposed oracles, unlike repeats"},
        ),
    log:
        "results/{study}/logs/report/study.log",
    conda:
        "../envs/assize.yaml"
    params:
        config=STUDY.config_file,
    shell:
        "python scripts/report.py study --study results/{wildcards.study}/study.json --config {params.config:q}"
        " > {log} 2>&1"


rule report_benchmark:
    input:
        record="results/{study}/census/census.json",
        rows="results/{study}/census/grades.csv",
    output:
        verdicts=report(
            "results/{study}/report/{benchmark}/verdicts.svg",
            caption="../report/verdicts.rst",
            category="Benchmark {benchmark}",
            labels={"shows": "1. Verdicts, instance by condition"},
        ),
        scores=report(
            "results/{study}/report/{benchmark}/scores.svg",
            caption="../report/scores.rst",
            category="Benchmark {benchmark}",
            labels={"shows": "2. Scores with 95% intervals"},
        ),
        comparisons=report(
            "results/{study}/report/{benchmark}/comparisons.html",
            caption="../report/comparisons.rst",
            category="Benchmark {benchmark}",
            labels={"shows": "3. Conditions compared, pair by pair"},
        ),
        signatures=report(
            "results/{study}/report/{benchmark}/signatures.html",
            caption="../report/signatures.rst",
            category="Benchmark {benchmark}",
            labels={"shows": "4. How it failed: signatures"},
        ),
        calibration=report(
            "results/{study}/report/{benchmark}/calibration.html",
            caption="../report/calibration.rst",
            category="Benchmark {benchmark}",
            labels={"shows": "5. Calibration and admission"},
        ),
    log:
        "results/{study}/logs/report/{benchmark}.log",
    conda:
        "../envs/assize.yaml"
    shell:
        "python scripts/report.py benchmark --study results/{wildcards.study}/study.json"
        " --benchmark {wildcards.benchmark} > {log} 2>&1"
