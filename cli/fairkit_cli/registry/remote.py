"""`fairkit registry push`, `pull` and `attach`: models and their evidence in OCI registries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairkit_cli import options as opt
from fairkit_cli.registry.common import RegistryOption, arrival_line, load_keys, open_registry, refusing
from fairkit_cli.terminal.output import echo, print_as, print_json

if TYPE_CHECKING:
    from fairkit_registry.oci.address import Address

AddressArgument = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Such as oci://host/team/credit:3 (oci+http:// without encryption).")
]


def push(
    reference: Annotated[str, typer.Argument(help="The version, such as credit@3 or credit@production.")],
    address: AddressArgument,
    *,
    form: Annotated[
        Literal["modelpack", "image"],
        opt.option(
            "--as", "FORM", "modelpack: the layer is the model; image: an image that Kubernetes can mount or unpack."
        ),
    ] = "modelpack",
    bom: Annotated[bool, typer.Option("--bom", help="Attach the version's bill of materials (CycloneDX).")] = False,
    mount: Annotated[
        str | None,
        opt.option(
            "--mount",
            "REPOSITORY",
            "Another repository of the same registry, which may have the bytes already: they are not sent then.",
        ),
    ] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Put a version with its certificates and revocation lists into an OCI registry.

    Logins are docker's (DOCKER_CONFIG, REGISTRY_AUTH_FILE, credential helpers). What is there is not sent again; the
    tag comes last.
    """
    from fairkit_registry.exchange.pushing import push as send
    from fairkit_registry.oci.address import parse

    where = parse(address)
    with open_registry(registry) as store:
        done = send(store, reference, where, form=form, bom=bom, mount=mount)
    _say_pushed(address, str(where.at(done.digest)), done.referrers, done.sent, output_format)


def attach(
    address: AddressArgument,
    certificates: Annotated[list[Path], typer.Argument(metavar="CERT...", help="Certificates about the model.")],
    output_format: opt.TableFormat = "table",
) -> None:
    """Attach certificates, or signatures of OpenSSF Model Signing, to a model that is in an OCI registry."""
    from fairkit_registry.exchange.pushing import attach as send
    from fairkit_registry.oci.address import parse

    where = parse(address)
    done = send(where, certificates)
    _say_pushed(address, str(where.at(done.digest)), done.referrers, done.sent, output_format)


def _say_pushed(address: str, exact: str, referrers: int, sent: int, output_format: str) -> None:
    from fairkit_cli.text.numbers import size

    print_as(
        output_format,
        {"address": address, "exact": exact, "referrers": referrers, "bytes_sent": sent},
        f"{address}: {exact}",
        f"  {referrers} certificates and lists refer to it; sent {size(sent)}",
    )


def pull(
    address: AddressArgument,
    *,
    name: Annotated[str | None, typer.Option(help="Another name for the model.")] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Take only what this key vouches for (repeatable).", show_default=False),
    ] = None,
    registry: RegistryOption = None,
    output_format: opt.TableFormat = "table",
) -> None:
    """Add a model of an OCI registry as the next version here, with the certificates that refer to it.

    Every byte is held against its digest before the registry here changes. Promote it as any other version.
    """
    from fairkit_registry.exchange.remote import pull as receive
    from fairkit_registry.oci.address import parse

    where, trusted = parse(address), load_keys(key)
    with refusing(), open_registry(registry, before=lambda: _check(where)) as store:
        received = receive(store, where, name=name, trusted=trusted)
    print_as(output_format, received.to_dict(), arrival_line(received, keyed=bool(key)))


def _check(where: Address) -> None:
    """Refuse what cannot be pulled before a new registry is made for it."""
    from fairkit_registry.exchange.remote import look

    look(where, model=False)


def address_of(where: str, reference: str) -> str:
    """Return the address of ``credit@3`` or ``credit@latest``; of ``credit``, that of its largest number."""
    from fairkit_registry import names
    from fairkit_registry.oci.address import parse
    from fairkit_registry.oci.client import Client

    wanted = names.parse(reference)
    tag = wanted.alias or (None if wanted.version is None else str(wanted.version))
    if tag is None:
        with Client(parse(f"{where}/{wanted.name}")) as client:
            tag = max(client.tags(), key=_newest, default="latest")
    return f"{where}/{wanted.name}:{tag}"


def _newest(tag: str) -> tuple[int, str]:
    return (int(tag) if tag.isdecimal() and len(tag) < _LONGEST_NUMBER else -1, tag)


_LONGEST_NUMBER = 19


def list_tags(where: str, name: str | None, output_format: str) -> None:
    """Print the models below an address, or the tags of one."""
    from fairkit_registry.oci.address import parse
    from fairkit_registry.oci.client import Client

    if name is None:
        base = parse(f"{where}/any")
        begin = base.repository.removesuffix("any")
        with Client(base) as client:
            listed = [one.removeprefix(begin) for one in client.catalog() if one.startswith(begin)]
        record: dict[str, Any] = {"registry": where, "models": sorted(listed)}
    else:
        with Client(parse(f"{where}/{name}")) as client:
            listed = sorted(client.tags(), key=_newest, reverse=True)
        record = {"registry": where, "model": name, "tags": listed}
    print_as(output_format, record, *(listed if name is None else (f"{name}@{tag}" for tag in listed)))


def show_tag(where: str, reference: str, output_format: str) -> None:
    """Print what a model in an OCI registry says of itself; nothing of it was checked by a key."""
    from fairkit.errors import FairkitError
    from fairkit_cli.text.verified import certificate
    from fairkit_registry.exchange.remote import look
    from fairkit_registry.oci.address import parse

    if output_format not in ("table", "json"):
        raise FairkitError(f"--format {output_format} needs the model here: fairkit registry pull {where}/...")
    address = parse(address_of(where, reference))
    artifact = look(address, model=False)
    claims, strange = artifact.claims()
    exact = str(address.at(artifact.digest))
    if output_format == "json":
        evidence = [one.to_dict() for one in claims]
        print_json({"address": str(address), "exact": exact, "sha256": artifact.model, "evidence": evidence})
        return
    echo(f"{address}", f"  {exact}", f"  model sha256 {artifact.model}")
    for one in claims:
        echo(*(f"  {line}" for line in certificate(one)))
    echo(*(f"  note: {text}" for text in strange))
