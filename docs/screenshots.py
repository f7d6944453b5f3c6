"""Write docs/images/{report,report-dark,report-phone,report-print,laws,frontier,comparison,adult}.png: run the commands, photograph their pages.

The last one needs Adult in the folder that FAIRKIT_DATA names (``fairkit.datasets`` has it too), and some minutes.
Needs chromium (or chrome) on PATH and the extras html and those of the plugins. Run it with
``python docs/screenshots.py``; with file names as arguments only those pictures are made. The commands are
printed as they are run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
FAIRKIT = str(Path(sys.executable).with_name("fairkit"))
RULES = (
    "--max demographic_parity_difference:sex=0.1 --max equal_opportunity_difference:ethnicity=0.3 --min accuracy=0.8"
)

COMMANDS = {
    "laws.html": ("report laws.json --key auditor.key.pub --pack nyc-ll144 --facts facts.toml --output laws.html"),
    "report.html": f"audit plain.onnx --data test.parquet --sensitive sex,ethnicity {RULES} --format html --output report.html",
    "comparison.html": "compare plain.onnx fair.onnx --data test.parquet --format html --output comparison.html",
    "frontier.html": (
        "frontier --plugin fairgbm,rto,reweigh --vary fairgbm.tolerance=0,0.05,0.1 --vary rto.rho=0.45:0.6:4 "
        "--vary reweigh.strength=0:1:4 --set fairgbm.n_estimators=100 --set fairgbm.constraint=demographic_parity "
        "--data train.parquet --test test.parquet --label decision --favorable approved --sensitive sex "
        "--limit 0.05 --state frontier.json --format html --report frontier.html"
    ),
    "adult.html": (
        "frontier --plugin fairgbm,rto,fair-regression,reweigh,exponentiated-gradient "
        "--vary fairgbm.tolerance=0.06,0.09,0.12,0.15 --set fairgbm.constraint=demographic_parity "
        "--vary rto.tolerance=0,0.05,0.1,0.15 --vary fair-regression.tolerance=0.02,0.05,0.1 "
        "--set fair-regression.iterations=4 --vary reweigh.strength=0.25:1:4 "
        "--vary exponentiated-gradient.tolerance=0,0.04,0.08,0.12 "
        "--data adult.parquet --label income --favorable '>50K' --sensitive sex --limit 0.05 "
        "--state adult.json --format html --report adult.html"
    ),
}
STEPS = {
    "laws.html": [
        "certify plain.onnx --data test.parquet --sensitive sex,ethnicity --pack nyc-ll144 --key auditor.key "
        "--output laws.json"
    ]
}
"""What comes before a page's own command."""
FACTS = """
tool = "ResumeRank 2"
distribution_date = 2026-12-01
auditor = "Doe & Partners"
auditor_no_part = true
auditor_no_employment = true
auditor_no_interest = true
category_source = "Stated by the applicants"
category_labels = "The groups of the demonstration are made up"
"""
PICTURES = {
    "report.png": ("report.html", 980, 1300, False),
    "report-dark.png": ("report.html", 980, 1300, True),
    "report-phone.png": ("report.html", 500, 1300, False),
    "report-print.png": ("report.html", 794, 1123, False),
    "laws.png": ("laws.html", 980, 1500, False),
    "comparison.png": ("comparison.html", 980, 900, False),
    "frontier.png": ("frontier.html", 980, 920, False),
    "adult.png": ("adult.html", 980, 940, False),
}


def browser() -> str:
    """Find the browser."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    raise SystemExit("no chromium on PATH: apt-get install chromium")


def photograph(page: Path, target: Path, width: int, height: int, dark: bool) -> None:
    """Take a picture of the top of a page."""
    flags = (
        "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking "
        f"--disable-component-update --disable-sync --window-size={width},{height} "
        f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    )
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser(), *flags.split(), f"--user-data-dir={profile}", f"--screenshot={target}", page.as_uri()],
            check=True,
            capture_output=True,
            timeout=120,
        )


def main(wanted: list[str]) -> None:
    """Run what the wanted pictures need, and take them."""
    known = [name for name in PICTURES if name != "adult.png" or "FAIRKIT_DATA" in os.environ]
    pictures = {name: PICTURES[name] for name in wanted or known}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "loans"
        subprocess.run([FAIRKIT, "demo", "--keep", str(here)], check=True, stdout=subprocess.DEVNULL)
        (here / "facts.toml").write_text(FACTS, "utf-8")
        if "adult.png" in pictures:
            shutil.copy(Path(os.environ["FAIRKIT_DATA"]) / "adult.parquet", here)
        for page in sorted({picture[0] for picture in pictures.values()}):
            sys.stdout.write(f"$ fairkit {COMMANDS[page]}\n")
            sys.stdout.flush()
            for command in (*STEPS.get(page, ()), COMMANDS[page]):
                done = subprocess.run(
                    [FAIRKIT, *shlex.split(command)], cwd=here, check=False, stdout=subprocess.DEVNULL
                )
                if done.returncode not in (0, 1, 3):  # a policy that is not met is no reason to stop
                    raise SystemExit(done.returncode)
        IMAGES.mkdir(exist_ok=True)
        for name, (page, width, height, dark) in pictures.items():
            source = here / page
            if name == "report-print.png":  # the first A4 sheet, as its style prints it
                source = here / "print.html"
                printed = (here / page).read_text("utf-8").replace("@media print", "@media all")
                source.write_text(printed.replace("main{max-width:none;padding:0}", "main{padding:40px}"), "utf-8")
            photograph(source, IMAGES / name, width, height, dark)


if __name__ == "__main__":
    main(sys.argv[1:])
