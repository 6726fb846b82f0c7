"""The figures of the report: verdicts by instance and condition, and scores with their intervals.

Colours are told apart by colour-blind readers and in print, and no meaning is carried by colour alone.
"""

PASS, FAIL, VOID, FAULT = "pass", "fail", "void", "harness fault"
# Dark, light and grey: three steps of lightness; what is not the candidate's is hatched.
COLOURS = {PASS: "#20639b", FAIL: "#f4a56b", VOID: "#d9d9d9", FAULT: "#7b1e4f"}
HATCHES = {VOID: "////", FAULT: "xxxx"}
MEANINGS = {
    PASS: "pass",
    FAIL: "fail",
    VOID: "void: not judged",
    FAULT: "fail by a fault of the harness",
}
# Inches. A row is as high as its label needs; blocks of rows stand side by side.
ROW, ROW_SMALL, COLUMN, LETTER = 0.26, 0.15, 0.42, 0.085
ROWS_IN_ONE_BLOCK, ROWS_IN_A_BLOCK = 45, 90
LEGEND = 6.5
INSTANCES_SHOWN = 900


def figure(width: float, height: float):
    """An empty figure, drawn without a display; text is kept as outlines, so that it looks alike everywhere."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "path", "hatch.linewidth": 0.7}
    )
    # Without it, the ids in an SVG are drawn at random.
    matplotlib.rcParams["svg.hashsalt"] = "assize"
    return Figure(figsize=(width, height), layout="constrained")


def as_svg(drawn) -> str:
    """The figure as SVG text; the same figure is the same text."""
    import io

    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def verdict_map(rows: list[dict], lines: list[dict], title: str):
    """Instance by condition: one cell an episode, repeats side by side.

    Parameters
    ----------
    rows : of one benchmark, from ``grades.csv``.
    lines : its conditions in the census, whose harness faults are told from answers.
    """
    faulty = {name for line in lines for fault in line["faults"] if fault["indicts"] for name in fault["episodes"]}
    instances = list(dict.fromkeys(row["instance"] for row in rows))
    shown = instances[:INSTANCES_SHOWN]
    columns = list(dict.fromkeys((row["condition"], row["repeat"]) for row in rows))
    cells = {}
    for row in rows:
        name = "{benchmark}/{condition}/{instance}/{repeat}".format(**row)
        cells[row["instance"], (row["condition"], row["repeat"])] = FAULT if name in faulty else row["verdict"]
    small = len(shown) > ROWS_IN_ONE_BLOCK
    per_block = ROWS_IN_A_BLOCK if small else ROWS_IN_ONE_BLOCK
    blocks = [shown[start : start + per_block] for start in range(0, len(shown), per_block)]
    row, size = (ROW_SMALL, 7.5) if small else (ROW, 10)
    # Columns are as wide as they can be in a page, so that their names need not be turned if they are few.
    column = max(0.16, min(COLUMN * 2, 9 / (len(columns) * len(blocks))))
    label = min(3.2, max(map(len, shown)) * size / 10 * LETTER) + 0.15
    needed = len(blocks) * (label + column * len(columns)) + 0.3
    names = max(len(condition) for condition, _ in columns) * LETTER
    repeats = len({repeat for _, repeat in columns})
    turned = 0 if names + 0.1 < column * repeats else 90
    height = len(blocks[0]) * row + (names if turned else 0.2) + 1.1
    # A place left empty keeps a small map from being stretched to the width of its legend.
    spare = max(0.01, LEGEND - needed)
    drawn = figure(needed + spare, height)
    *axes, empty = drawn.subplots(1, len(blocks) + 1, width_ratios=[*[needed / len(blocks)] * len(blocks), spare])
    empty.set_axis_off()
    for place, block in zip(axes, blocks, strict=True):
        _block(place, block, columns, cells, size, turned, len(blocks[0]))
    if len(shown) < len(instances):
        title += f"; the first {len(shown)} of {len(instances)} instances"
    drawn.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    drawn.legend(
        handles=_legend(set(cells.values())),
        loc="outside lower left",
        ncols=4,
        frameon=False,
        fontsize=9,
        handlelength=1.4,
    )
    return drawn


def _block(axes, instances: list[str], columns: list, cells: dict, size: float, turned: int, rows: int) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    groups: dict[str, list] = {}
    for y, instance in enumerate(instances):
        for x, column in enumerate(columns):
            found = cells.get((instance, column))
            if found:
                groups.setdefault(found, []).append(Rectangle((x, y), 1, 1))
    for found, rectangles in groups.items():
        axes.add_collection(
            PatchCollection(
                rectangles,
                facecolor=COLOURS[found],
                edgecolor="white",
                linewidth=0.8,
                hatch=HATCHES.get(found),
            )
        )
    axes.set(xlim=(0, len(columns)), ylim=(rows, 0))
    axes.set_yticks([y + 0.5 for y in range(len(instances))], [_short(name) for name in instances], fontsize=size)
    conditions = list(dict.fromkeys(condition for condition, _ in columns))
    repeats = len(columns) // len(conditions)
    axes.set_xticks([repeats * (x + 0.5) for x in range(len(conditions))], conditions, rotation=turned, fontsize=9)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _legend(present: set[str]) -> list:
    from matplotlib.patches import Patch

    return [
        Patch(facecolor=COLOURS[key], edgecolor="white", hatch=HATCHES.get(key), label=MEANINGS[key])
        for key in COLOURS
        if key in present
    ]


OVER = {"scored": ("#20639b", "over scored"), "planned": ("#a9c9e2", "over planned")}


def score_bars(lines: list[dict], title: str):
    """For each measure, each condition's score over scored and over planned, with its interval.

    Parameters
    ----------
    lines : the census's conditions of one benchmark.
    """
    measures = list(dict.fromkeys(item["measure"] for line in lines for item in line["estimates"])) or ["pass_rate"]
    names = [line["condition"] for line in lines]
    label = max(map(len, names)) * LETTER + 0.2
    height = len(measures) * (0.55 * len(lines) + 0.9) + 1.0
    drawn = figure(max(7.5, label + 6.5), height)
    for axes, measure in zip(drawn.subplots(len(measures), 1, squeeze=False)[:, 0], measures, strict=True):
        _bars(axes, lines, measure)
    drawn.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=told) for colour, told in OVER.values()]
    handles.append(Line2D([], [], color="black", linewidth=1.4, marker="|", label="95% interval"))
    drawn.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    return drawn


def _bars(axes, lines: list[dict], measure: str) -> None:
    for y, line in enumerate(lines):
        found = {item["over"]: item for item in line["estimates"] if item["measure"] == measure}
        if not found or found["scored"]["value"] is None:
            why = f"withheld: {line['withheld']}" if line["withheld"] else "nothing was scored"
            axes.text(0.01, y, _short(why, 90), va="center", fontsize=9, style="italic", color="#8f1239")
            continue
        for offset, (over, (colour, _)) in zip((-0.19, 0.19), OVER.items(), strict=True):
            item = found[over]
            error = None
            if item["low"] is not None:
                error = [[max(0, item["value"] - item["low"])], [max(0, item["high"] - item["value"])]]
            axes.barh(y + offset, item["value"], 0.34, color=colour, xerr=error, error_kw={"capsize": 3, "lw": 1.2})
            end = max(item["value"], item["high"] or 0)
            axes.text(end + 0.012, y + offset, f"{100 * item['value']:.1f}%", va="center", fontsize=9)
    axes.set(xlim=(0, 1.09), ylim=(len(lines) - 0.45, -0.55))
    axes.set_yticks(range(len(lines)), [line["condition"] for line in lines])
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_title(measure.replace("_", " "), loc="left", fontsize=10)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
