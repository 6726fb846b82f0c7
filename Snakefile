# Assize: grade a coding-benchmark study so that every number can be defended.
#
#   snakemake --profile profiles/local                                       the default study, config/study.yaml
#   snakemake --profile profiles/slurm --configfile config/studies/X.yaml    another one, on a cluster
#   snakemake --profile profiles/slurm results/<study>/episodes/<benchmark>/<condition>/<instance>/<repeat>/grade.json
#
# What is planned, made and counted lies in results/<study>/: study.json (the plan, with all pins), runtime/, calibration/,
# admission/, episodes/, census/ (census.json, grades.csv, accounting.json), audit.html, report/ and logs/. Staged data, which
# studies share, lies in results/staged/.

import sys

from snakemake.utils import min_version

min_version("9.0")
sys.path.insert(0, f"{workflow.basedir}/scripts")

from assize.workflow import begin, end, open_study


report: "report/workflow.rst"


if not workflow.overwrite_configfiles:

    configfile: "config/study.yaml"


# Checked whole before anything runs; a job on another node reads what was frozen.
STUDY = open_study(workflow, config)


wildcard_constraints:
    study=STUDY.name,
    benchmark="|".join(STUDY.benchmarks),
    condition="[^/]+",
    instance="[^/]+",
    repeat="[0-9]+",
    repetition="[0-9]+",
    sha256="[0-9a-f]{64}",


localrules:
    all,
    stage,
    wheelhouse,
    fetch,
    admit,
    census,
    accounting,
    report_study,
    report_benchmark,


# Once this run holds the lock on the study, and before any job.
onstart:
    begin(STUDY, workflow)


onsuccess:
    end(STUDY)


onerror:
    end(STUDY)


rule all:
    input:
        # Named here too: of what is only an input to something that is there, Snakemake would not miss a deleted one.
        STUDY.all_calibrations(),
        STUDY.grades(),
        f"results/{STUDY.name}/census/census.json",
        f"results/{STUDY.name}/census/accounting.json",
        f"results/{STUDY.name}/audit.html",
        expand(
            "results/{study}/report/{benchmark}/verdicts.svg",
            study=STUDY.name,
            benchmark=STUDY.benchmarks,
        ),


include: "rules/stage.smk"
include: "rules/wheelhouse.smk"
include: "rules/images.smk"
include: "rules/calibrate.smk"
include: "rules/episode.smk"
include: "rules/grade.smk"
include: "rules/census.smk"
include: "rules/report.smk"
