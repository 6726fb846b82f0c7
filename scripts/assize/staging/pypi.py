"""Finding one sdist or wheel in a package index."""

import os

from assize.staging.download import network_errors, patiently, timeouts
from assize.staging.part import SourceFailed


def find_distribution(source: dict):
    """The sdist or wheel in the package index (PIP_INDEX_URL, or else the default one), as pypi_simple has it."""
    import pypi_simple

    endpoint = os.environ.get("PIP_INDEX_URL") or pypi_simple.PYPI_SIMPLE_ENDPOINT

    def page():
        with network_errors(), pypi_simple.PyPISimple(endpoint) as client:
            return client.get_project_page(source["pypi"], timeout=timeouts())

    try:
        packages = patiently(page, f"pypi {source['pypi']}").packages
    except pypi_simple.NoSuchProjectError:
        raise SourceFailed(f"the index has no project {source['pypi']}") from None
    except (pypi_simple.UnsupportedContentTypeError, pypi_simple.UnsupportedRepoVersionError) as error:
        raise SourceFailed(f"not a package index: {error}") from error
    return choose_distribution(packages, source)


def choose_distribution(packages: list, source: dict):
    """The package with the declared kind, version and sha256; of an index without hashes, the first that may be it.

    Raises SourceFailed, with what the index offers instead.
    """
    from packaging.utils import canonicalize_version

    kind, version, sha256 = source["distribution"], canonicalize_version(source["version"]), source["sha256"]
    fitting = [
        package
        for package in packages
        if package.package_type == kind and package.version and canonicalize_version(package.version) == version
    ]
    for wanted in (sha256, None):
        for package in fitting:
            if package.digests.get("sha256") == wanted:
                return package
    offered = ", ".join(f"{package.filename} sha256 {package.digests['sha256']}" for package in fitting) or "none"
    raise SourceFailed(f"the index has no {kind} of {source['version']} with sha256 {sha256}; it has: {offered}")
