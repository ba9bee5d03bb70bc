"""Search engines that nobody here wrote."""

import httpx
import pytest
from real_servers import started

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("name", ["qdrant", "meilisearch", "typesense", "chroma"])
def test_starts(name, tmp_path):
    with started(name, tmp_path) as url:
        print(httpx.get(url).text[:300])
