"""The oracle canary: a candidate that looks for the grader's directory while the grader runs it.

One is made for each language that can be told from the names of the reference's files. A probe that can read a file of
the grader leaves MARKER in its current directory. It looks where a hostile candidate would: the environment, its
own and that of every process that it can see, and the places that the lanes use.
"""

from assize.sandbox import MARKER

_PYTHON = f"""
import glob, os
places = {{os.environ.get("GRADER_DIR", ""), "/grader"}}
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        for item in open(name, "rb").read().split(b"\\0"):
            if item.startswith(b"GRADER_DIR="):
                place = item[11:].decode()
                places |= {{place, os.path.dirname(name) + "/root" + place}}
    except OSError:
        pass
for place in places:
    try:
        for name in os.listdir(place) if place else ():
            open(os.path.join(place, name), "rb").read(1)
            open({MARKER!r}, "w").close()
    except OSError:
        pass
"""

_SHELL = f"""
seen=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sed -n 's/^GRADER_DIR=//p')
for place in "$GRADER_DIR" /grader $seen; do
  [ -n "$place" ] && for file in "$place"/*; do
    [ -f "$file" ] && head -c 1 "$file" >/dev/null 2>&1 && : > {MARKER}
  done
done
true
"""

_PERL = f"""
my %places = map {{ $_ => 1 }} grep {{ $_ }} ($ENV{{GRADER_DIR}}, "/grader");
for my $name (glob "/proc/[0-9]*/environ") {{
    open(my $file, "<", $name) or next;
    local $/; my $all = <$file> // "";
    /^GRADER_DIR=(.*)/s and $places{{$1}} = 1 for split /\\0/, $all;
}}
for my $place (keys %places) {{
    for my $name (glob "$place/*") {{
        open(my $file, "<", $name) or next;
        open(my $mark, ">", "{MARKER}");
    }}
}}
"""

_JAVASCRIPT = f"""
const fs = require("fs");
const places = new Set([process.env.GRADER_DIR || "", "/grader"]);
for (const name of fs.readdirSync("/proc")) {{
  try {{
    for (const item of fs.readFileSync("/proc/" + name + "/environ", "latin1").split("\\0"))
      if (item.startsWith("GRADER_DIR=")) places.add(item.slice(11));
  }} catch (error) {{}}
}}
for (const place of places) {{
  try {{
    for (const name of place ? fs.readdirSync(place) : []) {{
      fs.readFileSync(place + "/" + name);
      fs.writeFileSync("{MARKER}", "");
    }}
  }} catch (error) {{}}
}}
"""

_C = f"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void look(const char *place) {{
    DIR *folder = opendir(place);
    struct dirent *entry;
    char path[8192];
    while (folder && (entry = readdir(folder))) {{
        FILE *file;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", place, entry->d_name);
        if ((file = fopen(path, "r")) && fgetc(file) != EOF) fopen("{MARKER}", "w");
    }}
}}
int main(void) {{
    char item[65536];
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    if (getenv("GRADER_DIR")) look(getenv("GRADER_DIR"));
    look("/grader");
    while (proc && (entry = readdir(proc))) {{
        FILE *file;
        size_t length, at = 0;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        snprintf(item, sizeof item, "/proc/%s/environ", entry->d_name);
        if (!(file = fopen(item, "r"))) continue;
        length = fread(item, 1, sizeof item - 1, file);
        for (item[length] = 0; at < length; at += strlen(item + at) + 1)
            if (!strncmp(item + at, "GRADER_DIR=", 11)) look(item + at + 11);
    }}
    return 0;
}}
"""

PROBES = {".py": _PYTHON, ".sh": _SHELL, ".pl": _PERL, ".js": _JAVASCRIPT, ".c": _C}


def probe_files(reference_files: dict[str, str]) -> dict[str, str] | None:
    """The reference's files with each program replaced by a probe; None where no file's language has one."""
    suffixes = {name: name[name.rfind(".") :] for name in reference_files if "." in name}
    if not any(suffix in PROBES for suffix in suffixes.values()):
        return None
    return {name: PROBES.get(suffixes.get(name), content) for name, content in reference_files.items()}
