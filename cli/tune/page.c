/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c: report.html of a sweep: parallel coordinates, importance, trials. One file; it asks for nothing else.
 *
 * Lines are drawn here as SVG; the better a trial, the darker. Light and dark follow the reader's system.
 */
#include <math.h>

#include "cli/tune/tune.h"

#define HEIGHT 320
#define TOP    40
#define COLUMN 130
#define LEFT   70

static const char head[] =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>sweep</title><style>\n"
    ":root{color-scheme:light dark;--ink:#222;--paper:#fff;--line:#0b62a4;--soft:#ccc}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161616;--line:#6cb8f5;--soft:#444}}\n"
    "body{font:15px/1.4 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.5rem}\n"
    ".wide{overflow-x:auto}svg text{fill:var(--ink);font-size:11px}table{border-collapse:collapse}\n"
    "td,th{padding:.15rem .6rem;text-align:left;border-bottom:1px solid var(--soft);white-space:nowrap}\n"
    "path{fill:none;stroke:var(--line)}path:hover{stroke-width:4;opacity:1}line{stroke:var(--soft)}\n"
    ".best{stroke:#d9480f;stroke-width:3}rect{fill:var(--line)}</style></head><body>\n";

static tri_status text_append(tri_string *out, const char *text)
{
    for (; *text; text++) {
        const char *safe = *text == '<'   ? "&lt;"
                           : *text == '>' ? "&gt;"
                           : *text == '&' ? "&amp;"
                           : *text == '"' ? "&quot;"
                                          : NULL;
        TRI_TRY(safe ? tri_string_append(out, safe) : tri_string_append_bytes(out, text, 1));
    }
    return TRI_OK;
}

static double y_of(double unit)
{
    return TOP + (1 - unit) * (HEIGHT - 2 * TOP);
}

/* The metric's axis: the best is on top, and trials are placed by their rank among those after the same steps. */
static double place_of(const tri_tune_work *work, const tri_trial *trial, int64_t step)
{
    const double mine = tri_sweep_cost(&work->sweep, tri_trial_at(trial, step));
    int worse = 0, count = 0;
    if (isnan(mine))
        return (double)NAN;
    for (int i = 0; i < tri_trials_count(&work->trials); i++) {
        double other = tri_sweep_cost(&work->sweep, tri_trial_at(tri_trials_at(&work->trials, i), step));
        count += !isnan(other);
        worse += other > mine;
    }
    return count > 1 ? (double)worse / (count - 1) : 1;
}

static tri_status axis_append(tri_string *out, int column, const char *name, const char *low, const char *high)
{
    const int x = LEFT + column * COLUMN;
    TRI_TRY(tri_string_appendf(
        out, "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"14\" text-anchor=\"middle\">", x, x,
        TOP, HEIGHT - TOP, x));
    TRI_TRY(text_append(out, name));
    TRI_TRY(tri_string_appendf(out, "</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", x, TOP - 6));
    TRI_TRY(text_append(out, high));
    TRI_TRY(tri_string_appendf(out, "</text><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", x, HEIGHT - TOP + 16));
    TRI_TRY(text_append(out, low));
    return tri_string_append(out, "</text>\n");
}

static tri_status trial_append(const tri_tune_work *work, const tri_trial *trial, bool best, int64_t step,
                               tri_string *out)
{
    const tri_trial_param *params = trial->params.items;
    const double place = place_of(work, trial, step);
    bool begun = false;
    if (isnan(place))
        return TRI_OK;
    TRI_TRY(tri_string_appendf(out, "<path%s opacity=\"%.2f\" d=\"", best ? " class=\"best\"" : "",
                               0.15 + 0.8 * place * place));
    for (int r = 0; r < work->sweep.space.count; r++) {
        if (isnan(trial->units[r]))
            continue;
        TRI_TRY(tri_string_appendf(out, "%c%d %.1f", begun ? 'L' : 'M', LEFT + r * COLUMN, y_of(trial->units[r])));
        begun = true;
    }
    TRI_TRY(tri_string_appendf(out, "%c%d %.1f\"><title>trial %d: %.6g", begun ? 'L' : 'M',
                               LEFT + work->sweep.space.count * COLUMN, y_of(place), trial->number,
                               tri_trial_at(trial, step)));
    for (size_t i = 0; i < trial->params.count; i++) {
        TRI_TRY(tri_string_append(out, "\n"));
        TRI_TRY(text_append(out, params[i].name));
        TRI_TRY(tri_string_append(out, "="));
        TRI_TRY(text_append(out, params[i].text));
    }
    return tri_string_append(out, "</title></path>\n");
}

static tri_status coordinates_append(const tri_tune_work *work, const tri_trial *best, int64_t step, tri_string *out)
{
    const tri_space *space = &work->sweep.space;
    TRI_TRY(tri_string_appendf(
        out,
        "<h2>Trials after %lld steps</h2><div class=\"wide\"><svg role=\"img\" aria-label=\"parallel "
        "coordinates\" width=\"%d\" height=\"%d\">\n",
        (long long)step, 2 * LEFT + space->count * COLUMN, HEIGHT));
    for (int r = 0; r < space->count; r++) {
        char low[1024], high[1024];
        tri_space_value(&space->rows[r], 0, low);
        tri_space_value(&space->rows[r], 1, high);
        low[24] = high[24] = 0;
        TRI_TRY(axis_append(out, r, space->rows[r].name, low, high));
    }
    TRI_TRY(axis_append(out, space->count, tri_sweep_metric_word(work->sweep.tune.metric), "worst", "best"));
    for (int i = 0; i < tri_trials_count(&work->trials); i++)
        if (tri_trials_at(&work->trials, i) != best)
            TRI_TRY(trial_append(work, tri_trials_at(&work->trials, i), false, step, out));
    if (best)
        TRI_TRY(trial_append(work, best, true, step, out));
    return tri_string_append(out, "</svg></div>\n");
}

static tri_status importance_append(const tri_tune_work *work, const double *parts, tri_string *out)
{
    const tri_space *space = &work->sweep.space;
    TRI_TRY(tri_string_appendf(
        out,
        "<h2>Importance</h2><p>Part of the variance of the trials' ranks that each option explains by "
        "itself (correlation ratio).</p><svg role=\"img\" aria-label=\"importance\" width=\"600\" "
        "height=\"%d\">\n",
        10 + 22 * space->count));
    for (int r = 0; r < space->count; r++) {
        TRI_TRY(tri_string_appendf(out, "<text x=\"190\" y=\"%d\" text-anchor=\"end\">", 18 + 22 * r));
        TRI_TRY(text_append(out, space->rows[r].name));
        if (isnan(parts[r]))
            TRI_TRY(tri_string_appendf(out, "</text><text x=\"200\" y=\"%d\">too few trials</text>\n", 18 + 22 * r));
        else
            TRI_TRY(tri_string_appendf(
                out,
                "</text><rect x=\"200\" y=\"%d\" width=\"%.0f\" height=\"14\"/><text x=\"%.0f\" y=\"%d\">%.2f</text>\n",
                6 + 22 * r, 340 * parts[r], 206 + 340 * parts[r], 18 + 22 * r, parts[r]));
    }
    return tri_string_append(out, "</svg>\n");
}

static tri_status table_append(const tri_tune_work *work, tri_string *out)
{
    TRI_TRY(tri_string_append(out, "<h2>All</h2><div class=\"wide\"><table><tr><th>trial<th>state<th>steps<th>"));
    TRI_TRY(text_append(out, tri_sweep_metric_word(work->sweep.tune.metric)));
    TRI_TRY(tri_string_append(out, "<th>options</tr>\n"));
    for (int i = 0; i < tri_trials_count(&work->trials); i++) {
        const tri_trial *trial = tri_trials_at(&work->trials, i);
        const tri_trial_point *last = tri_trial_last(trial);
        const tri_trial_param *params = trial->params.items;
        TRI_TRY(tri_string_appendf(out, "<tr><td>%d<td>%s<td>%lld<td>%.6g<td>", trial->number,
                                   tri_trial_state_text(trial->state), (long long)(last ? last->step : 0),
                                   last ? last->value : (double)NAN));
        for (size_t p = 0; p < trial->params.count; p++) {
            TRI_TRY(text_append(out, params[p].name));
            TRI_TRY(tri_string_append(out, "="));
            TRI_TRY(text_append(out, params[p].text));
            TRI_TRY(tri_string_append(out, " "));
        }
        TRI_TRY(text_append(out, trial->error));
        TRI_TRY(tri_string_append(out, "</tr>\n"));
    }
    return tri_string_append(out, "</table></div>\n");
}

tri_status tri_tune_page(const tri_tune_work *work, const double *parts, int64_t step, tri_string *out)
{
    const tri_trial *best = tri_trials_best(&work->trials, &work->sweep);
    TRI_TRY(tri_string_append(out, head));
    TRI_TRY(tri_string_append(out, "<h1>"));
    TRI_TRY(text_append(out, work->folder));
    TRI_TRY(tri_string_append(out, "</h1>\n"));
    if (best) {
        tri_string config = {0};
        tri_status status = tri_tune_best_config(work, best, &config);
        if (status == TRI_OK)
            status =
                tri_string_appendf(out,
                                   "<p>Best: trial %d, %s %.6g after %lld steps.</p><details><summary>Its configuration"
                                   "</summary><pre>",
                                   best->number, tri_sweep_metric_word(work->sweep.tune.metric),
                                   tri_trial_last(best)->value, (long long)tri_trial_last(best)->step);
        if (status == TRI_OK)
            status = text_append(out, tri_string_text(&config));
        tri_string_fini(&config);
        TRI_TRY(status);
        TRI_TRY(tri_string_append(out, "</pre></details>\n"));
    }
    if (work->sweep.space.count > 0) {
        TRI_TRY(coordinates_append(work, best, step, out));
        TRI_TRY(importance_append(work, parts, out));
    }
    TRI_TRY(table_append(work, out));
    return tri_string_append(out, "</body></html>\n");
}
