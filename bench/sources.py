"""Seconds to fetch and pack the demo's package sources: cold (empty cache), warm (cached packages,
a new store) and done (the same store again). Run: `python bench/sources.py [MAX_PAGES]`."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from eyas.corpus import fetch_sources
from eyas.recipe import Recipe
from eyas.store import open_store

DEMO = Path(__file__).parent.parent / "recipes" / "demo.toml"


def main(pages: int) -> None:
    recipe = Recipe.load(DEMO, set={"corpus.max_pages": pages})
    figures: dict[str, object] = {"max_pages": pages}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        for case, name in (("cold", "one"), ("warm", "two"), ("done", "two")):
            wall, cpu = time.perf_counter(), time.process_time()
            manifest = fetch_sources(recipe, open_store(f"{folder}/{name}"))
            figures[f"{case}_s"] = round(time.perf_counter() - wall, 2)
            figures[f"{case}_cpu_s"] = round(time.process_time() - cpu, 2)
    languages: Counter[str] = Counter()
    for tag, count in manifest.facts["languages"].items():
        languages[tag.partition("-")[0] or "none"] += count
    figures |= manifest.counters | {"files": len(manifest.objects), "languages": languages}
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2500)
