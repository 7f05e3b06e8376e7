/* SPDX-License-Identifier: Apache-2.0
 *
 * trials.c: trials, and their tables in SQLite. Each change is a transaction; the write-ahead log lets others read.
 */
#include "tune/trials.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

#define FORMAT "1"

static const char schema[] =
    "PRAGMA journal_mode=WAL;"
    "CREATE TABLE IF NOT EXISTS sweep(key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS trial(number INTEGER PRIMARY KEY, state TEXT, target INTEGER, seconds REAL, error "
    "TEXT);"
    "CREATE TABLE IF NOT EXISTS param(trial INTEGER, place INTEGER, name TEXT, value TEXT, PRIMARY KEY(trial, place));"
    "CREATE TABLE IF NOT EXISTS unit(trial INTEGER, place INTEGER, value REAL, PRIMARY KEY(trial, place));"
    "CREATE TABLE IF NOT EXISTS point(trial INTEGER, step INTEGER, value REAL, PRIMARY KEY(trial, step));";

static const char *const state_texts[] = {
#define STATE_TEXT(name, text) [TRI_TRIAL_##name] = text,
    TRI_TRIAL_STATES(STATE_TEXT)
#undef STATE_TEXT
};

const char *tri_trial_state_text(tri_trial_state state)
{
    return state_texts[state];
}

const tri_trial_point *tri_trial_last(const tri_trial *trial)
{
    return trial->points.count > 0 ? tri_vector_at(&trial->points, trial->points.count - 1) : NULL;
}

double tri_trial_at(const tri_trial *trial, int64_t step)
{
    const tri_trial_point *points = trial->points.items;
    for (size_t i = 0; i < trial->points.count; i++)
        if (points[i].step == step)
            return points[i].value;
    return (double)NAN;
}

/* --- the database --- */

static tri_status failed(sqlite3 *db, const char *what)
{
    return tri_fail(TRI_EIO, "trials.sqlite: %s: %s", what, sqlite3_errmsg(db));
}

static tri_status execute(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? TRI_OK : failed(db, "cannot be written");
}

static tri_status prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out)
{
    return sqlite3_prepare_v2(db, sql, -1, out, NULL) == SQLITE_OK ? TRI_OK : failed(db, "cannot be read");
}

/* One that gives no rows. */
static tri_status step_once(sqlite3 *db, sqlite3_stmt *statement)
{
    int code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? TRI_OK : failed(db, "cannot be written");
}

static tri_status open_file(const char *folder, const char *name, bool reads, sqlite3 **db)
{
    char path[1300];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int flags = reads ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(path, db, flags, NULL) != SQLITE_OK)
        return tri_fail(TRI_EIO, "%s: %s", path, sqlite3_errmsg(*db));
    sqlite3_busy_timeout(*db, 10000);
    return TRI_OK;
}

/* Held while this process lives: the system gives it back when it is killed. */
static tri_status lock_take(const char *folder, sqlite3 **lock)
{
    TRI_TRY(open_file(folder, "lock.sqlite", false, lock));
    sqlite3_busy_timeout(*lock, 0);
    if (sqlite3_exec(*lock, "BEGIN EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK)
        return tri_fail(TRI_ECONFIG, "%s: another trireme tune has this sweep", folder);
    return TRI_OK;
}

static tri_status meta_read(sqlite3 *db, const char *key, tri_string *value, bool *found)
{
    sqlite3_stmt *statement;
    TRI_TRY(prepare(db, "SELECT value FROM sweep WHERE key = ?", &statement));
    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    *found = sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_text(statement, 0) != NULL;
    tri_status status = *found ? tri_string_append(value, (const char *)sqlite3_column_text(statement, 0)) : TRI_OK;
    sqlite3_finalize(statement);
    return status;
}

static tri_status meta_write(sqlite3 *db, const char *key, const char *value)
{
    sqlite3_stmt *statement;
    TRI_TRY(prepare(db, "INSERT INTO sweep VALUES(?, ?)", &statement));
    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
    return step_once(db, statement);
}

/* That what is written there under a key is `wanted`; written where there is nothing. */
static tri_status meta_agree(sqlite3 *db, const char *folder, const char *key, const char *wanted, const char *words)
{
    tri_string found = {0};
    bool is_there;
    tri_status status = meta_read(db, key, &found, &is_there);
    if (status == TRI_OK && !is_there)
        status = meta_write(db, key, wanted);
    else if (status == TRI_OK && strcmp(tri_string_text(&found), wanted) != 0)
        status = tri_fail(TRI_ECONFIG, "%s: %s", folder, words);
    tri_string_fini(&found);
    return status;
}

/* --- trials in memory --- */

int tri_trials_count(const tri_trials *trials)
{
    return (int)trials->list.count;
}

tri_trial *tri_trials_at(const tri_trials *trials, int index)
{
    return *(tri_trial **)tri_vector_at(&trials->list, (size_t)index);
}

tri_trial *tri_trials_find(const tri_trials *trials, int number)
{
    for (int i = 0; i < tri_trials_count(trials); i++)
        if (tri_trials_at(trials, i)->number == number)
            return tri_trials_at(trials, i);
    return NULL;
}

tri_status tri_trials_add(tri_trials *trials, int number, tri_trial **out)
{
    tri_trial *trial = tri_alloc_zero(1, sizeof(*trial));
    if (!trial || !(trial->units = tri_alloc_zero((size_t)trials->space_count + 1, sizeof(double))) ||
        !tri_vector_push(&trials->list, &trial)) {
        if (trial)
            tri_free(trial->units);
        tri_free(trial);
        return TRI_ENOMEM;
    }
    trial->number = number;
    trial->params.each = sizeof(tri_trial_param);
    trial->points.each = sizeof(tri_trial_point);
    for (int i = 0; i < trials->space_count; i++)
        trial->units[i] = (double)NAN;
    *out = trial;
    return TRI_OK;
}

tri_status tri_trial_param_add(tri_trial *trial, const char *name, const char *text)
{
    tri_trial_param param = {tri_strdup(name), tri_strdup(text)};
    if (param.name && param.text && tri_vector_push(&trial->params, &param))
        return TRI_OK;
    tri_free(param.name);
    tri_free(param.text);
    return TRI_ENOMEM;
}

static void trial_free(tri_trial *trial)
{
    tri_trial_param *params = trial->params.items;
    for (size_t i = 0; i < trial->params.count; i++) {
        tri_free(params[i].name);
        tri_free(params[i].text);
    }
    tri_vector_fini(&trial->params);
    tri_vector_fini(&trial->points);
    tri_free(trial->units);
    tri_free(trial);
}

/* --- loading --- */

static tri_trial_state state_of(const char *text)
{
    for (size_t i = 0; text && i < TRI_COUNT_OF(state_texts); i++)
        if (strcmp(state_texts[i], text) == 0)
            return (tri_trial_state)i;
    return TRI_TRIAL_FAILED;
}

static const char *column_text(sqlite3_stmt *row, int column)
{
    const unsigned char *text = sqlite3_column_text(row, column);
    return text ? (const char *)text : "";
}

static tri_status trial_load(tri_trials *trials, sqlite3_stmt *row)
{
    tri_trial *trial;
    TRI_TRY(tri_trials_add(trials, sqlite3_column_int(row, 0), &trial));
    trial->state = state_of(column_text(row, 1));
    trial->target = sqlite3_column_int64(row, 2);
    trial->seconds = sqlite3_column_double(row, 3);
    snprintf(trial->error, sizeof(trial->error), "%s", column_text(row, 4));
    return TRI_OK;
}

static tri_status param_load(tri_trials *trials, sqlite3_stmt *row)
{
    tri_trial *trial = tri_trials_find(trials, sqlite3_column_int(row, 0));
    return trial ? tri_trial_param_add(trial, column_text(row, 1), column_text(row, 2)) : TRI_OK;
}

static tri_status unit_load(tri_trials *trials, sqlite3_stmt *row)
{
    tri_trial *trial = tri_trials_find(trials, sqlite3_column_int(row, 0));
    int place = sqlite3_column_int(row, 1);
    if (trial && place >= 0 && place < trials->space_count)
        trial->units[place] = sqlite3_column_double(row, 2);
    return TRI_OK;
}

static tri_status point_load(tri_trials *trials, sqlite3_stmt *row)
{
    tri_trial *trial = tri_trials_find(trials, sqlite3_column_int(row, 0));
    bool number = sqlite3_column_type(row, 2) != SQLITE_NULL; /* SQLite keeps NaN as NULL */
    tri_trial_point point = {sqlite3_column_int64(row, 1), number ? sqlite3_column_double(row, 2) : (double)NAN};
    return !trial || tri_vector_push(&trial->points, &point) ? TRI_OK : TRI_ENOMEM;
}

static tri_status load(tri_trials *trials)
{
    static const struct {
        const char *sql;
        tri_status (*take)(tri_trials *trials, sqlite3_stmt *row);
    } tables[] = {
        {"SELECT number, state, target, seconds, error FROM trial ORDER BY number", trial_load},
        {"SELECT trial, name, value FROM param ORDER BY trial, place", param_load},
        {"SELECT trial, place, value FROM unit", unit_load},
        {"SELECT trial, step, value FROM point ORDER BY trial, step", point_load},
    };
    for (size_t i = 0; i < TRI_COUNT_OF(tables); i++) {
        sqlite3_stmt *statement;
        tri_status status = TRI_OK;
        int code = SQLITE_DONE;
        TRI_TRY(prepare(trials->db, tables[i].sql, &statement));
        while (status == TRI_OK && (code = sqlite3_step(statement)) == SQLITE_ROW)
            status = tables[i].take(trials, statement);
        sqlite3_finalize(statement);
        TRI_TRY(status);
        if (code != SQLITE_DONE)
            return failed(trials->db, "cannot be read");
    }
    return TRI_OK;
}

tri_status tri_trials_open(const char *folder, const tri_sweep *sweep, bool reads, tri_trials *trials)
{
    *trials = (tri_trials){.list = {.each = sizeof(tri_trial *)}, .space_count = sweep->space.count};
    if (!reads)
        TRI_TRY(lock_take(folder, &trials->lock));
    TRI_TRY(open_file(folder, "trials.sqlite", reads, &trials->db));
    if (!reads) {
        TRI_TRY(execute(trials->db, schema));
        TRI_TRY(meta_agree(trials->db, folder, "format", FORMAT, "trials.sqlite is of another version of trireme"));
        TRI_TRY(meta_agree(trials->db, folder, "sweep", sweep->text,
                           "was made by a sweep that says something else (only trials and parallel may change): want "
                           "another folder, --out"));
    }
    return load(trials);
}

void tri_trials_close(tri_trials *trials)
{
    for (int i = 0; i < tri_trials_count(trials); i++)
        trial_free(tri_trials_at(trials, i));
    tri_vector_fini(&trials->list);
    sqlite3_close(trials->db);
    sqlite3_close(trials->lock);
    *trials = (tri_trials){0};
}

/* --- saving --- */

static tri_status params_save(tri_trials *trials, const tri_trial *trial)
{
    const tri_trial_param *params = trial->params.items;
    sqlite3_stmt *statement;
    for (size_t i = 0; i < trial->params.count; i++) {
        TRI_TRY(prepare(trials->db, "INSERT OR REPLACE INTO param VALUES(?, ?, ?, ?)", &statement));
        sqlite3_bind_int(statement, 1, trial->number);
        sqlite3_bind_int(statement, 2, (int)i);
        sqlite3_bind_text(statement, 3, params[i].name, -1, SQLITE_STATIC);
        sqlite3_bind_text(statement, 4, params[i].text, -1, SQLITE_STATIC);
        TRI_TRY(step_once(trials->db, statement));
    }
    for (int i = 0; i < trials->space_count; i++) {
        if (isnan(trial->units[i]))
            continue;
        TRI_TRY(prepare(trials->db, "INSERT OR REPLACE INTO unit VALUES(?, ?, ?)", &statement));
        sqlite3_bind_int(statement, 1, trial->number);
        sqlite3_bind_int(statement, 2, i);
        sqlite3_bind_double(statement, 3, trial->units[i]);
        TRI_TRY(step_once(trials->db, statement));
    }
    return TRI_OK;
}

static tri_status trial_save(tri_trials *trials, const tri_trial *trial)
{
    sqlite3_stmt *statement;
    TRI_TRY(prepare(trials->db, "INSERT OR REPLACE INTO trial VALUES(?, ?, ?, ?, ?)", &statement));
    sqlite3_bind_int(statement, 1, trial->number);
    sqlite3_bind_text(statement, 2, tri_trial_state_text(trial->state), -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 3, trial->target);
    sqlite3_bind_double(statement, 4, trial->seconds);
    sqlite3_bind_text(statement, 5, trial->error, -1, SQLITE_STATIC);
    TRI_TRY(step_once(trials->db, statement));
    return params_save(trials, trial);
}

tri_status tri_trials_save(tri_trials *trials, const tri_trial *trial)
{
    TRI_TRY(execute(trials->db, "BEGIN IMMEDIATE"));
    tri_status status = trial_save(trials, trial);
    if (status == TRI_OK)
        return execute(trials->db, "COMMIT");
    sqlite3_exec(trials->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

tri_status tri_trials_point_add(tri_trials *trials, tri_trial *trial, int64_t step, double value)
{
    const tri_trial_point *last = tri_trial_last(trial);
    tri_trial_point point = {step, value};
    sqlite3_stmt *statement;
    if (last && step <= last->step)
        return TRI_OK;
    TRI_TRY(prepare(trials->db, "INSERT OR REPLACE INTO point VALUES(?, ?, ?)", &statement));
    sqlite3_bind_int(statement, 1, trial->number);
    sqlite3_bind_int64(statement, 2, step);
    sqlite3_bind_double(statement, 3, value);
    TRI_TRY(step_once(trials->db, statement));
    return tri_vector_push(&trial->points, &point) ? TRI_OK : TRI_ENOMEM;
}

tri_trial *tri_trials_best(const tri_trials *trials, const tri_sweep *sweep)
{
    tri_trial *best = NULL;
    for (int i = 0; i < tri_trials_count(trials); i++) {
        tri_trial *trial = tri_trials_at(trials, i);
        const tri_trial_point *mine = tri_trial_last(trial), *other = best ? tri_trial_last(best) : NULL;
        if (!mine || isnan(mine->value) || trial->state == TRI_TRIAL_FAILED)
            continue;
        if (!other || mine->step > other->step ||
            (mine->step == other->step && tri_sweep_cost(sweep, mine->value) < tri_sweep_cost(sweep, other->value)))
            best = trial;
    }
    return best;
}
