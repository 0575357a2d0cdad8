"""Charts as inline SVG: no script, no reference to anything outside, coloured by the page's own style sheet.

`axis` places values, `lines` draws curves, `strips` draws intervals, dots and shares. A chart repeats what a table beside
it says in numbers, so that nothing depends on seeing it, and tells its series apart by dash and shape as well as colour.
Output depends on nothing but its input: no identifiers by chance, no date.
"""
