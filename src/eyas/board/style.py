"""The style sheet: quiet, typographic, light and dark, in the page itself."""

__all__ = ["CSS"]

CSS = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --sheet: #ffffff; --ink: #1f1e1b; --soft: #6b675f; --faint: #8d887e;
  --rule: #e5e1d8; --grid: #ece8df; --accent: #9a5b13; --fill: #c98a3a; --other: #b9b3a6;
  --good: #2f6f4f; --bad: #a13d2d; --wash: #f3efe6;
  --c0: #2d5f8b; --c1: #b3701a; --c2: #3d7a55; --c3: #8a4a78; --c4: #a5432f; --c5: #55606e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15161a; --sheet: #1b1c21; --ink: #e9e6df; --soft: #a5a199; --faint: #858178;
    --rule: #2e2f35; --grid: #282930; --accent: #e0a458; --fill: #c58b3f; --other: #55554f;
    --good: #74b893; --bad: #e08673; --wash: #202127;
    --c0: #7fb0dc; --c1: #e2a650; --c2: #7fc09b; --c3: #c890b8; --c4: #e08673; --c5: #a3afbd;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
main, header.top, footer { max-width: 1080px; margin: 0 auto; padding: 0 28px; }
header.top { padding-top: 40px; display: flex; justify-content: space-between;
             align-items: baseline; }
.mark, h1, h2, .figure b {
  font-family: "Iowan Old Style", Palatino, "Palatino Linotype", "Noto Serif", Georgia, serif;
}
.mark { font-size: 20px; letter-spacing: .02em; color: var(--accent); }
header.top .when, footer { color: var(--faint); font-size: 14px; }
h1 { font-weight: 500; font-size: clamp(34px, 6vw, 54px); line-height: 1.1; margin: 28px 0 8px;
     letter-spacing: -.015em; overflow-wrap: anywhere; }
.facts { color: var(--soft); font-size: 14px; margin: 0 0 34px; overflow-wrap: anywhere; }
.facts span + span::before { content: "·"; margin: 0 .6em; color: var(--faint); }
code { font: .92em ui-monospace, "SF Mono", "DejaVu Sans Mono", Consolas, monospace; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, max-content));
           justify-content: space-between; gap: 0 30px; border: solid var(--rule);
           border-width: 1px 0; margin: 0 0 12px; }
.figure { padding: 16px 0 14px; }
.figure span { display: block; color: var(--soft); font-size: 13px; }
.figure b { display: block; font-weight: 500; font-size: 29px; line-height: 1.25;
            white-space: nowrap; }
.figure i { font-style: normal; color: var(--faint); font-weight: 400; }
section { display: grid; grid-template-rows: auto 1fr;
          grid-template-columns: 190px minmax(0, 1fr); gap: 8px 34px; padding: 38px 0 6px; }
section + section { border-top: 1px solid var(--rule); margin-top: 34px; }
h2 { font-weight: 500; font-size: 22px; line-height: 1.25; margin: 0; }
section > p.lead { grid-column: 1; color: var(--soft); font-size: 14px; margin: 0; }
section > div.body { grid-column: 2; grid-row: 1 / span 2; min-width: 0; }
h3 { font-size: 13px; font-weight: 600; color: var(--soft); margin: 26px 0 6px; }
h3:first-child { margin-top: 0; }
td .pm { color: var(--faint); font-weight: 400; font-size: .92em; }
.missing { color: var(--faint); font-style: italic; margin: 2px 0 0; }
.problem { border-inline-start: 3px solid var(--bad); padding: 4px 14px; margin: 14px 0;
           color: var(--bad); font-size: 14px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
svg.chart { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { fill: var(--soft); font-size: 13px; }
svg text.axis { fill: var(--faint); font-size: 13px; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--grid); stroke-width: 1; }
path { fill: none; stroke-linejoin: round; stroke-linecap: round; }
path.strong { stroke-width: 2.4; } path.raw { stroke-width: 1; opacity: .38; }
path.pale { stroke-width: 1.2; opacity: .45; stroke-dasharray: 1 4; }
path.bar { stroke-width: 1.4; stroke-dasharray: 6 5; stroke: var(--faint) !important; }
circle.hover { fill: transparent; stroke: none; }
circle.hover:hover { fill: var(--accent); fill-opacity: .28; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 8px 0 0;
            padding: 0 0 0 64px; font-size: 13px; color: var(--soft); }
ul.legend svg { width: 22px; height: 8px; margin-inline-end: 7px; vertical-align: 1px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; }
th { font-weight: 500; font-size: 13px; color: var(--soft); text-align: start;
     padding: 4px 14px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: bottom; }
td { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td:last-child, th:last-child { padding-inline-end: 0; }
td.n + td:not(.n), th.n + th:not(.n) { padding-inline-start: 10px; }
tr:last-child td { border-bottom: 0; }
tr.sum td { border-top: 1px solid var(--rule); font-weight: 600; }
th.n, td.n { text-align: end; }
td.n { white-space: nowrap; }
td.w { width: 38%; padding-inline-end: 0; }
.bar { display: flex; height: 10px; border-radius: 2px; overflow: hidden; background: var(--wash);
       margin-top: 7px; }
.bar i { display: block; background: var(--fill); min-width: 1px; }
.bar i.lost { background: var(--other); }
.pair .bar { margin-top: 2px; height: 8px; } .pair .bar + .bar { margin-top: 3px; }
.bar i.model { background: var(--c0); }
.why { color: var(--soft); font-size: 13px; line-height: 1.6; margin: 3px 0 0; }
.why span { white-space: nowrap; } .why span:not(:last-child)::after { content: " ·"; }
.good { color: var(--good); } .bad { color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 5px 22px; margin: 0;
     font-size: 14.5px; }
.scroll + .why { margin-top: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr));
           gap: 8px 40px; }
.run + .run { border-top: 3px double var(--rule); margin-top: 56px; padding-top: 8px; }
footer { padding-top: 40px; padding-bottom: 60px; }
@media (max-width: 760px) {
  main, header.top, footer { padding-inline: 18px; }
  section { grid-template-columns: minmax(0, 1fr); padding-top: 28px; }
  section > div.body, section > p.lead { grid-column: 1; grid-row: auto; }
  td.w { display: none; } th.w { display: none; }
  ul.legend { padding-inline-start: 0; }
}
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""
