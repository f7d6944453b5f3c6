"""`fairkit registry site`: a static web view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, open_registry
from fairkit_cli.terminal.output import print_as


def site(
    *,
    output: Annotated[Path, opt.option("--output", "FOLDER", "The folder; a site that is there is replaced whole.")],
    title: Annotated[
        str, opt.option("--title", "TEXT", "The title of the first page. Default: Model registry.")
    ] = "Model registry",
    url: Annotated[
        str, opt.option("--url", "URL", "Where the site will be, as https://example.org/models/; for its feed.")
    ] = "",
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Write pages that show the registry to people without fairkit: any web server, or none, can serve them.

    Models, versions, aliases with what they ask for and whether they get it, certificates and whether they hold,
    promotions with reasons, numbers over versions, lineage, any two versions side by side, and a feed.
    """
    from fairkit.errors import FairkitError
    from fairkit.plugins import listed_once
    from fairkit_cli.registry.site.build import build, check

    check(output)
    if url and not url.startswith(("https://", "http://")):
        raise FairkitError(f"--url {url} is no address; write it as https://example.org/models/")
    with open_registry(registry) as store, listed_once():
        count = build(store, output, title=title, url=f"{url.rstrip('/')}/" if url else "")
    print_as(
        output_format,
        {"site": str(output), "files": count, "index": str(output / "index.html")},
        f"{output / 'index.html'}  {count:,} files",
    )
