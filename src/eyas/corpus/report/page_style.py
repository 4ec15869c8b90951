"""The style sheet of the report: quiet, typographic, light and dark, in the page itself.

The colours mean one thing everywhere: `--keep` is what stays, `--drop` is what goes.
"""

__all__ = ["CSS"]

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --sheet: #fff; --ink: #1f1e1b; --soft: #635f57; --faint: #7d786e;
  --rule: #e0dbd0; --grid: #ece8df; --wash: #f3efe6; --accent: #9a5b13;
  --keep: #35688f; --drop: #bb5a3c; --pale: #c9d6e0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15161a; --sheet: #1b1c21; --ink: #e9e6df; --soft: #aaa69d; --faint: #8e8a82;
    --rule: #33343a; --grid: #282930; --wash: #202127; --accent: #e0a458;
    --keep: #7fb0dc; --drop: #e58a6b; --pale: #34485a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); font-variant-numeric: tabular-nums;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 36px 28px 72px; }
.kicker { color: var(--accent); font-size: 14px; letter-spacing: .04em; margin: 0; }
h1, h2, .figure b {
  font-family: "Iowan Old Style", Palatino, "Palatino Linotype", "Noto Serif", Georgia, serif;
  font-weight: 500;
}
h1 { font-size: clamp(32px, 6vw, 50px); line-height: 1.1; margin: 10px 0 8px;
     letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 25px; line-height: 1.25; margin: 0 0 4px; }
h3 { font-size: 15px; font-weight: 600; margin: 28px 0 8px; }
.lead { color: var(--soft); max-width: 46rem; margin: 0 0 18px; }
.soft { color: var(--soft); font-size: 13.5px; }
code { font: .92em ui-monospace, "SF Mono", "DejaVu Sans Mono", Consolas, monospace;
       overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 14px; margin: 18px 0 26px; }
nav a { color: var(--accent); text-decoration: none; padding: 4px 0; }
nav a:hover, nav a:focus-visible { text-decoration: underline; }
section { border-top: 1px solid var(--rule); margin-top: 44px; padding-top: 26px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr));
           gap: 0 26px; border: solid var(--rule); border-width: 1px 0; }
.figure { padding: 14px 0 12px; }
.figure span { display: block; color: var(--soft); font-size: 13.5px; }
.figure b { display: block; font-size: 29px; line-height: 1.25; white-space: nowrap; }
aside { margin: 26px 0 0; padding: 14px 22px 16px; background: var(--wash);
        border-inline-start: 3px solid var(--drop); }
aside ul { margin: 6px 0 0; padding-inline-start: 18px; } aside li + li { margin-top: 5px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 20px; color: var(--soft); font-size: 13.5px;
          margin: 0 0 12px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px;
            margin-inline-end: 7px; vertical-align: -1px; }
.keep { background: var(--keep); } .drop { background: var(--drop); }
ol.funnel { list-style: none; margin: 0; padding: 0; }
ol.funnel li { display: grid; grid-template-columns: 120px minmax(0, 1fr) 108px 158px;
               gap: 0 18px; padding: 9px 0 10px; border-bottom: 1px solid var(--grid); }
ol.funnel .n { text-align: end; white-space: nowrap; }
ol.funnel .gone { color: var(--drop); }
.bar { display: flex; height: 14px; border-radius: 3px; overflow: hidden; background: var(--wash);
       margin-top: 5px; }
.bar i { display: block; min-width: 0; }
.why { grid-column: 2 / -1; color: var(--soft); font-size: 13.5px; margin: 4px 0 0; }
.why span { white-space: nowrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; }
th { font-weight: 500; font-size: 13.5px; color: var(--soft); text-align: start;
     padding: 4px 10px 6px; border-bottom: 1px solid var(--rule); vertical-align: bottom; }
td { padding: 5px 10px; border-bottom: 1px solid var(--grid); vertical-align: top; }
th:first-child, td:first-child { padding-inline-start: 0; }
th.n, td.n { text-align: end; white-space: nowrap; }
td.line { white-space: nowrap; }
td.url { overflow-wrap: anywhere; min-width: 12rem; }
table.narrow td:first-child { width: 1%; }
tr.sum td { border-top: 1px solid var(--rule); font-weight: 600; }
table.heat { border-collapse: separate; border-spacing: 0; }
table.heat th:first-child, table.heat td:first-child { position: sticky; inset-inline-start: 0;
  background: var(--paper); z-index: 1; padding-inline-end: 14px; font-weight: 600; }
td.heat { text-align: end; white-space: nowrap; border-inline-start: 2px solid var(--paper);
  background: color-mix(in srgb, var(--drop) calc(var(--share) * .75), transparent); }
.steps { display: grid; grid-template-columns: repeat(auto-fill, minmax(290px, 1fr));
         gap: 26px 34px; }
figure { margin: 0; min-width: 0; }
figcaption { font-weight: 600; font-size: 14px; margin-bottom: 4px; }
figcaption .soft { font-weight: 400; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 11px; fill: var(--faint); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .keep { fill: var(--keep); } svg .drop { fill: var(--drop); }
svg .base { stroke: var(--rule); stroke-width: 1; }
svg .cut { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 3 2; opacity: .35; }
svg .cut.main { opacity: 1; stroke-dasharray: none; }
svg .curve { fill: none; stroke: var(--keep); stroke-width: 2; }
svg.rows text { font-size: 11px; fill: var(--soft); }
.rules { list-style: none; margin: 6px 0 0; padding: 0; font-size: 13.5px; color: var(--soft); }
.rules b { color: var(--ink); font-weight: 500; }
details > summary { cursor: pointer; color: var(--accent); font-size: 14px; padding: 5px 0; }
details.group { border-bottom: 1px solid var(--grid); }
details.group > summary { color: var(--ink); font-size: 15px; padding: 8px 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr));
         gap: 14px; margin: 4px 0 18px; }
article { background: var(--sheet); border: 1px solid var(--rule); border-radius: 6px;
          padding: 11px 15px 12px; min-width: 0; }
article header { color: var(--soft); font-size: 13px; line-height: 1.45; margin-bottom: 6px;
                 overflow-wrap: anywhere; }
article header b { color: var(--ink); font-weight: 600; }
article .failed { color: var(--drop); }
article p { margin: 0; white-space: pre-line; overflow-wrap: anywhere; font-size: 15px;
            text-align: start; max-height: 15.5em; overflow: hidden; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr));
        gap: 20px 44px; }
.sizes { display: grid; grid-template-columns: max-content minmax(0, 1fr) max-content;
         gap: 4px 14px; font-size: 14.5px; align-items: center; }
.sizes .bar { margin: 0; }
.missing { color: var(--faint); font-style: italic; }
@media (max-width: 720px) {
  main { padding: 24px 18px 48px; }
  ol.funnel li { grid-template-columns: minmax(0, 1fr) auto auto; gap: 0 14px; }
  ol.funnel .bar { grid-column: 1 / -1; grid-row: 2; }
  .why { grid-column: 1 / -1; }
  .figure b { font-size: 25px; }
  .pack { display: none; }
}
@media print { body { background: #fff; } figure, article, li { break-inside: avoid; } }
"""
