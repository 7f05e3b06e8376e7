/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kv_chain.c: servers with backups, and workers, that are killed at any moment and started again: no push is lost
 * or counts twice, and bsp gives the same bits. Members of the job are processes: this program, told so by its
 * environment. By hand, more kills of anybody and how long each holds up the others:
 *
 *     unit_ps_test_kv_chain kills=100
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "cluster/store.h"
#include "ps/key.h"
#include "unit/ps/kv_rig.h"

#define TOKEN   "0123456789abcdef0123456789abcdef"
#define WORKERS 2
#define SERVERS 3
#define KEYS    1500
#define PUSHES  200
#define FEW     24 /* pushes of a run whose first moments are looked at */
#define DIM     8
#define OPENS   "opens its table"
#define LIVES   "lives:"
#define ALONE   "100000" /* pushes without a backup: more than are made before a server is killed */

/* --- a member --- */

static const char *const options[] = {"comm.interface=lo", "ps.replicas=2", "comm.timeout_s=60", NULL};
static const char *const options_alone[] = {"comm.interface=lo", "ps.replicas=1", "ps.retry_s=2", NULL};

/* Counts pushes, and that each worker's come in their order. */
static void count(void *arg, uint64_t key, float *row, const float *pushed, int dim)
{
    (void)arg, (void)key;
    row[0] += 1;
    for (int e = 1; e < dim; e++)
        row[e] = pushed[e] == 0 ? row[e] : (row[e] + 1 == pushed[e] ? pushed[e] : -1e9f);
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != TRI_OK) {                                                                                        \
            fprintf(stderr, "%d: %s: %s\n", (int)getpid(), #call, tri_last_error());                                   \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* What members and job tell each other meanwhile: memory that they share. */
typedef struct progress {
    _Atomic int64_t answered[WORKERS]; /* pushes of each worker, of all its lives */
    _Atomic int64_t halves;            /* lives that found a push taken in by some servers and not by others */
    atomic_bool stop;
    atomic_int killed; /* servers, */
    int kills;         /* of so many */
} progress;

static progress *progress_map(const char *path)
{
    int fd = open(path, O_RDWR);
    void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(progress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

/* A worker that is done with `part` of `all` waits for as much of the kills. */
static void kills_await(int part, int all)
{
    static progress *shared;
    if (!shared)
        shared = progress_map(getenv("KV_PROGRESS"));
    while (shared && atomic_load(&shared->killed) < part * shared->kills / all)
        tri_sleep_ns(TRI_NS_PER_MS);
}

static int count_run(tri_kv *kv, int pushes)
{
    static uint64_t keys[KEYS];
    static float rows[KEYS * DIM], got[KEYS * DIM];
    tri_kv_table *table;
    int own = tri_kv_worker(kv), workers = tri_kv_worker_count(kv), wrong = 0;
    fprintf(stderr, "worker %d " OPENS "\n", own);
    MUST(tri_kv_table_open(kv, "count", DIM, "merge: count", &table));
    for (int i = 0; i < KEYS; i++)
        keys[i] = (uint64_t)i * 1000003;
    for (int p = 1; p <= pushes; p++) {
        for (int i = 0; i < KEYS; i++)
            rows[i * DIM + 1 + own] = (float)p;
        if (p % 4 == 0)
            MUST(tri_kv_push_pull(table, keys, rows, got, KEYS, NULL));
        else {
            tri_kv_work *work;
            MUST(tri_kv_push(table, -1, keys, rows, KEYS, &work));
            MUST(tri_kv_wait(work));
        }
        for (int i = 0; p % 4 == 0 && i < KEYS; i++)
            wrong += got[i * DIM + 1 + own] != (float)p;
        if (p % 8 == 0)
            MUST(tri_kv_barrier(kv));
        kills_await(p, pushes);
        tri_sleep_ns(6 * TRI_NS_PER_MS); /* so that most kills come between pushes, not at such a wait */
    }
    MUST(tri_kv_barrier(kv));
    MUST(tri_kv_pull(table, keys, KEYS, got, NULL));
    for (int i = 0; i < KEYS; i++) {
        wrong += got[i * DIM] != (float)(pushes * workers);
        for (int w = 0; w < workers; w++)
            wrong += got[i * DIM + 1 + w] != (float)pushes;
    }
    if (wrong > 0)
        fprintf(stderr, "worker %d: %d counts are wrong: row 0: %g, %g, %g\n", own, wrong, (double)got[0],
                (double)got[1], (double)got[2]);
    return wrong > 0;
}

/* A worker that may be killed: its life before has pushed to each key as often as the row says, perhaps once more to
 * some keys than to others. */
static int lives_run(tri_kv *kv, const char *path)
{
    static uint64_t keys[KEYS], some[KEYS];
    static float rows[KEYS * DIM], got[KEYS * DIM], ends[WORKERS];
    const uint64_t workers[WORKERS] = {0, 1};
    int own = tri_kv_worker(kv), wrong = 0;
    progress *shared = progress_map(path);
    tri_kv_table *table, *ended;
    MUST(shared ? TRI_OK : tri_fail(TRI_EIO, "no %s", path));
    MUST(tri_kv_table_open(kv, "count", DIM, "merge: count", &table));
    MUST(tri_kv_table_open(kv, "ended", 1, "merge: assign", &ended));
    for (int i = 0; i < KEYS; i++)
        keys[i] = (uint64_t)i * 1000003;
    MUST(tri_kv_pull(table, keys, KEYS, got, NULL));
    float least = got[1 + own], most = least;
    for (int i = 0; i < KEYS; i++) {
        least = got[i * DIM + 1 + own] < least ? got[i * DIM + 1 + own] : least;
        most = got[i * DIM + 1 + own] > most ? got[i * DIM + 1 + own] : most;
    }
    wrong += most > least + 1;
    atomic_fetch_add(&shared->halves, most > least);
    float p = least;
    for (; p < most || !atomic_load(&shared->stop); atomic_fetch_add(&shared->answered[own], 1)) {
        int64_t count = 0;
        p++;
        for (int i = 0; i < KEYS; i++)
            if (got[i * DIM + 1 + own] < p) {
                some[count] = keys[i];
                rows[count++ * DIM + 1 + own] = p;
            }
        MUST(tri_kv_push(table, -1, some, rows, count, NULL));
        MUST(tri_kv_pull(table, keys, KEYS, got, NULL));
        for (int i = 0; i < KEYS; i++)
            wrong += got[i * DIM + 1 + own] != p;
        tri_sleep_ns(TRI_NS_PER_MS);
    }
    MUST(tri_kv_push(ended, -1, &workers[own], &p, 1, NULL));
    for (bool all = false; !all; tri_sleep_ns(5 * TRI_NS_PER_MS)) {
        MUST(tri_kv_pull(ended, workers, WORKERS, ends, NULL));
        all = ends[0] > 0 && ends[1] > 0;
    }
    MUST(tri_kv_pull(table, keys, KEYS, got, NULL));
    for (int i = 0; i < KEYS; i++)
        wrong += got[i * DIM] != ends[0] + ends[1] || got[i * DIM + 1] != ends[0] || got[i * DIM + 2] != ends[1];
    if (wrong > 0)
        fprintf(stderr, "worker %d: %d counts are wrong: row 0: %g of %g and %g\n", own, wrong, (double)got[0],
                (double)ends[0], (double)ends[1]);
    return wrong > 0;
}

/* Prints the hash of its rows: servers may be killed, or not. */
static int bits_run(tri_kv *kv, const char *path)
{
    kv_rig rig = {.workers = tri_kv_worker_count(kv)};
    kv_seat seat = {.rig = &rig, .kv = kv, .worker = tri_kv_worker(kv)};
    tri_kv_table *table;
    MUST(tri_kv_table_open(kv, "bits", KV_DIM,
                           "consistency: bsp, merge: optim, initial: normal, optim: {name: adagrad, lr: 0.1}", &table));
    for (int64_t step = 0; step < 40; step++) {
        kv_steps_run(&seat, table, step + 1);
        kills_await((int)step + 1, 40);
        tri_sleep_ns(20 * TRI_NS_PER_MS);
    }
    uint64_t hash = kv_rows_hash(&seat, table);
    if (seat.worker == 0) {
        FILE *file = fopen(path, "w");
        if (!file || fprintf(file, "%016llx", (unsigned long long)hash) != 16 || fclose(file) != 0)
            return 1;
    }
    return atomic_load(&rig.failures) > 0;
}

/* what: a number of pushes, a path for the hash, or LIVES and the path of what is shared. */
static int member(const char *what)
{
    static const tri_kv_merge_row merges[] = {{"count", count, NULL}, {NULL, NULL, NULL}};
    tri_kv *kv;
    bool alone = strcmp(what, ALONE) == 0;
    tri_kv_job job = {.timeout_s = alone ? 5 : 60, .options = alone ? options_alone : options, .merges = merges};
    MUST(tri_kv_join(&job, &kv));
    if (!kv)
        return 0;
    int failed = strncmp(what, LIVES, strlen(LIVES)) == 0 ? lives_run(kv, what + strlen(LIVES))
                 : what[0] == '/'                         ? bits_run(kv, what)
                                                          : count_run(kv, atoi(what));
    MUST(tri_kv_close(kv));
    return failed;
}

/* --- the job --- */

typedef struct job {
    tri_store_server *store;
    int world, servers;
    const char *what;   /* as of member() */
    char progress[64];  /* path of what is shared with members, "": nothing is */
    FILE *said, *reads; /* what all members say, and a place of its own there */
    long mark;          /* where that was when a server was killed last */
    pid_t members[16];
} job;

static void member_start(job *at, int rank)
{
    char number[16], world[16], servers[16], store[64];
    snprintf(number, sizeof(number), "%d", rank);
    snprintf(world, sizeof(world), "%d", at->world);
    snprintf(servers, sizeof(servers), "%d", at->servers);
    snprintf(store, sizeof(store), "tcp://127.0.0.1:%d", tri_store_server_port(at->store));
    const char *environment[][2] = {{"TRIREME_RANK", number},       {"TRIREME_WORLD_SIZE", world},
                                    {"TRIREME_LOCAL_RANK", number}, {"TRIREME_LOCAL_WORLD_SIZE", world},
                                    {"TRIREME_SERVERS", servers},   {"TRIREME_STORE", store},
                                    {"TRIREME_TOKEN", TOKEN},       {"KV_MEMBER", at->what},
                                    {"KV_PROGRESS", at->progress}};
    for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++)
        setenv(environment[i][0], environment[i][1], 1);
    char self[TRI_FS_PROGRAM_NBYTES]; /* not "/proc/self/exe": under valgrind that is valgrind */
    assert_int_equal(tri_fs_program(self), TRI_OK);
    at->members[rank] = fork();
    if (at->members[rank] == 0) {
        dup2(fileno(at->said), STDERR_FILENO);
        execl(self, "member", (char *)NULL);
        _exit(127);
    }
}

/* Each connection that members have said since `from`. */
static void connections_read(job *at, long from, void (*connection)(void *arg, const char *text), void *arg)
{
    char text[1024];
    fseek(at->reads, from, SEEK_SET);
    while (fgets(text, sizeof(text), at->reads))
        connection(arg, text);
    clearerr(at->reads);
}

static void connection_print(void *arg, const char *text)
{
    (void)arg;
    fputs(text, stderr);
}

static void connection_opens(void *arg, const char *text)
{
    *(bool *)arg |= strstr(text, OPENS) != NULL;
}

typedef struct settled {
    unsigned long long view;
    unsigned copies; /* bits of servers that have all of another one in that view */
} settled;

static void connection_settled(void *arg, const char *text)
{
    settled *at = arg;
    unsigned long long view;
    int server;
    const char *begin = strstr(text, " view ");
    if (!begin || sscanf(begin, " view %llu:", &view) != 1 || view < at->view)
        return;
    if (view > at->view)
        *at = (settled){.view = view};
    if (sscanf(begin, " view %llu: server %d has a copy", &view, &server) == 2)
        at->copies |= 1u << server;
}

/* Every server has said that its backup has all, of the newest view: two deaths at once would be one too many. */
static bool is_settled(job *at)
{
    settled all = {0};
    connections_read(at, at->mark, connection_settled, &all);
    return __builtin_popcount(all.copies) == at->servers;
}

/* Workers that have not ended. */
static int workers_left(job *at, int *failed)
{
    int left = 0, workers = at->world - at->servers;
    for (int w = 0; w < workers; w++) {
        int status;
        if (at->members[w] == 0)
            continue;
        if (waitpid(at->members[w], &status, WNOHANG) == 0) {
            left++;
            continue;
        }
        at->members[w] = 0;
        *failed += status != 0;
    }
    return left;
}

static void rank_kill(job *at, int rank)
{
    int status;
    kill(at->members[rank], SIGKILL);
    waitpid(at->members[rank], &status, 0);
    if (rank < at->world - at->servers)
        return;
    fseek(at->reads, 0, SEEK_END);
    at->mark = ftell(at->reads);
}

static void server_kill(job *at, rig_random *random)
{
    int rank = at->world - at->servers + (int)rig_below(random, (uint64_t)at->servers);
    rank_kill(at, rank);
    tri_sleep_ns((int64_t)rig_below(random, 100) * TRI_NS_PER_MS); /* meanwhile the last one learns lists of keys */
    member_start(at, rank);
}

static progress *progress_make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, sizeof(progress)) == 0);
    close(fd);
    progress *shared = progress_map(path);
    assert_non_null(shared);
    return shared;
}

static void job_start(job *at)
{
    at->world = WORKERS + at->servers;
    char path[64];
    at->said = tmpfile();
    assert_non_null(at->said);
    fcntl(fileno(at->said), F_SETFL, O_APPEND);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(at->said));
    at->reads = fopen(path, "r");
    assert_non_null(at->reads);
    OK(tri_store_server_start("127.0.0.1", 0, TOKEN, &at->store));
    for (int r = 0; r < at->world; r++)
        member_start(at, r);
}

/* How many workers have failed; what was said is said if some have. */
static int job_end(job *at, int failed, int64_t end_ns)
{
    int status;
    while (workers_left(at, &failed) > 0 && tri_now_ns() < end_ns)
        tri_sleep_ns(5 * TRI_NS_PER_MS);
    failed += workers_left(at, &failed) > 0;
    for (int r = 0; r < at->world; r++)
        if (at->members[r] > 0) {
            kill(at->members[r], SIGKILL);
            waitpid(at->members[r], &status, 0);
        }
    tri_store_server_stop(at->store);
    if (failed > 0)
        connections_read(at, 0, connection_print, NULL);
    fclose(at->reads);
    fclose(at->said);
    return failed;
}

/* Kills servers, each when the one before is made up for. */
static int job_run(const char *what, int servers, int kills, uint64_t seed)
{
    job at = {.servers = servers, .what = what};
    rig_random random = {.rng = {seed, 1}};
    int failed = 0;
    int64_t end_ns = tri_deadline_after_ms(150000);
    snprintf(at.progress, sizeof(at.progress), "/tmp/trireme-progress-%d", (int)getpid());
    progress *shared = progress_make(at.progress);
    shared->kills = kills;
    job_start(&at);
    while (workers_left(&at, &failed) == WORKERS && tri_now_ns() < end_ns) {
        tri_sleep_ns(2 * TRI_NS_PER_MS);
        if (atomic_load(&shared->killed) == kills || !is_settled(&at))
            continue;
        tri_sleep_ns((int64_t)rig_below(&random, 150) * TRI_NS_PER_MS);
        server_kill(&at, &random);
        atomic_fetch_add(&shared->killed, 1);
    }
    failed = job_end(&at, failed, end_ns);
    assert_int_equal(atomic_load(&shared->killed), kills);
    munmap(shared, sizeof(*shared));
    unlink(at.progress);
    return failed;
}

static void no_push_is_lost_or_counts_twice_when_servers_are_killed(void **state)
{
    char pushes[16];
    (void)state;
    snprintf(pushes, sizeof(pushes), "%d", PUSHES);
    assert_int_equal(job_run(pushes, SERVERS, 4, 1), 0);
    assert_int_equal(job_run(pushes, 2, 4, 7), 0);
}

static void connection_lost(void *arg, const char *text)
{
    *(bool *)arg |= strstr(text, "the rows that it held are lost: begin again with the newest tri_kv_save()") != NULL;
}

/* Nobody goes on with rows that began anew without a word. */
static void a_server_that_is_lost_without_a_backup_ends_the_job_and_says_so(void **state)
{
    job at = {.servers = 2, .what = ALONE};
    rig_random random = {.rng = {1, 2}};
    bool opens = false, said = false;
    int failed = 0, status, rank = WORKERS + 1;
    int64_t end_ns = tri_deadline_after_ms(60000);
    (void)state;
    job_start(&at);
    for (; !opens && tri_now_ns() < end_ns; tri_sleep_ns(TRI_NS_PER_MS))
        connections_read(&at, 0, connection_opens, &opens);
    tri_sleep_ns((200 + (int64_t)rig_below(&random, 100)) * TRI_NS_PER_MS);
    rank_kill(&at, rank);
    member_start(&at, rank);
    waitpid(at.members[rank], &status, 0);
    at.members[rank] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    connections_read(&at, 0, connection_lost, &said);
    assert_true(said);
    while (workers_left(&at, &failed) > 0 && tri_now_ns() < end_ns)
        tri_sleep_ns(5 * TRI_NS_PER_MS);
    assert_int_equal(failed, WORKERS);
    (void)job_end(&at, 0, end_ns);
}

/* Nanoseconds until all workers have made a push that began after the kill; -1: that takes too long. */
static int64_t kill_any(job *at, int rank, progress *shared)
{
    int64_t wanted[WORKERS], start_ns = tri_now_ns();
    for (int w = 0; w < WORKERS; w++)
        wanted[w] = atomic_load(&shared->answered[w]) + 2;
    rank_kill(at, rank);
    if (rank < WORKERS) /* what its next life pushes began after it */
        wanted[rank] = atomic_load(&shared->answered[rank]) + 1;
    member_start(at, rank);
    for (int w = 0; w < WORKERS; w++)
        while (atomic_load(&shared->answered[w]) < wanted[w]) {
            if (tri_now_ns() - start_ns > INT64_C(30) * TRI_NS_PER_S)
                return -1;
            tri_sleep_ns(TRI_NS_PER_MS);
        }
    return tri_now_ns() - start_ns;
}

static int order_ns(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Kills anybody, so often. How many workers have failed. */
static int lives_job(int kills, uint64_t seed)
{
    char path[64], what[sizeof(path) + sizeof(LIVES)];
    int64_t held_up[1000];
    int failed = 0, killed = 0, of_servers = 0;
    int64_t end_ns = tri_deadline_after_ms(kills * INT64_C(30000)); /* as kill_any() */
    rig_random random = {.rng = {seed, 3}};
    job at = {.servers = SERVERS, .what = what};
    snprintf(path, sizeof(path), "/tmp/trireme-lives-%d", (int)getpid());
    snprintf(what, sizeof(what), LIVES "%s", path);
    progress *shared = progress_make(path);
    job_start(&at);
    while (killed < kills && tri_now_ns() < end_ns) {
        tri_sleep_ns((int64_t)rig_below(&random, 150) * TRI_NS_PER_MS);
        int rank = (int)rig_below(&random, (uint64_t)at.world);
        if (!is_settled(&at) || atomic_load(&shared->answered[0]) == 0 || atomic_load(&shared->answered[1]) == 0)
            continue;
        held_up[killed] = kill_any(&at, rank, shared);
        if (held_up[killed] < 0)
            break;
        of_servers += rank >= WORKERS;
        killed++;
    }
    int64_t pushes = atomic_load(&shared->answered[0]) + atomic_load(&shared->answered[1]);
    int64_t halves = atomic_load(&shared->halves);
    atomic_store(&shared->stop, true);
    failed = job_end(&at, failed + (killed < kills), tri_deadline_after_ms(60000));
    munmap(shared, sizeof(*shared));
    unlink(path);
    qsort(held_up, (size_t)killed, sizeof(held_up[0]), order_ns);
    if (killed > 0)
        print_message("%d kills, %d of them of servers; %lld pushes, %lld half taken in; all workers had pushed again "
                      "after %.0f ms (median), %.0f (most)\n",
                      killed, of_servers, (long long)pushes, (long long)halves, 1e-6 * (double)held_up[killed / 2],
                      1e-6 * (double)held_up[killed - 1]);
    return failed;
}

static void no_push_is_lost_or_counts_twice_whoever_is_killed(void **state)
{
    (void)state;
    assert_int_equal(lives_job(12, 11), 0);
}

/* A server is killed while the first worker opens its table. */
static int first_run(uint64_t seed)
{
    char pushes[16];
    job at = {.servers = seed % 2 ? 2 : SERVERS, .what = pushes};
    rig_random random = {.rng = {seed, 2}};
    bool opens = false;
    int failed = 0;
    int64_t end_ns = tri_deadline_after_ms(60000);
    snprintf(pushes, sizeof(pushes), "%d", FEW);
    job_start(&at);
    for (; !opens && workers_left(&at, &failed) == WORKERS && tri_now_ns() < end_ns; tri_sleep_ns(TRI_NS_PER_MS / 10))
        connections_read(&at, 0, connection_opens, &opens);
    tri_sleep_ns((int64_t)rig_below(&random, 80) * TRI_NS_PER_MS / 10);
    server_kill(&at, &random);
    return job_end(&at, failed, end_ns);
}

static void a_server_may_be_killed_while_tables_are_opened(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        assert_int_equal(first_run(seed), 0);
}

static void bits_of(char text[17], int servers, int kills)
{
    char path[64];
    snprintf(path, sizeof(path), "/tmp/trireme-chain-%d", (int)getpid());
    assert_int_equal(job_run(path, servers, kills, 5), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, 16, file), 16);
    text[16] = '\0';
    fclose(file);
    unlink(path);
}

static void bsp_gives_the_same_bits_when_servers_are_killed(void **state)
{
    char wanted[17], got[17];
    (void)state;
    bits_of(wanted, 1, 0);
    bits_of(got, SERVERS, 3);
    assert_string_equal(got, wanted);
    bits_of(got, 2, 3);
    assert_string_equal(got, wanted);
}

int main(int argc, char **argv)
{
    const char *what = getenv("KV_MEMBER");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_may_be_killed_while_tables_are_opened),
        cmocka_unit_test(no_push_is_lost_or_counts_twice_when_servers_are_killed),
        cmocka_unit_test(no_push_is_lost_or_counts_twice_whoever_is_killed),
        cmocka_unit_test(bsp_gives_the_same_bits_when_servers_are_killed),
        cmocka_unit_test(a_server_that_is_lost_without_a_backup_ends_the_job_and_says_so),
    };
    if (what)
        return member(what);
    int kills = 0;
    if (argc > 1 && sscanf(argv[1], "kills=%d", &kills) == 1 && kills > 0 && kills <= 1000)
        return lives_job(kills, argc > 2 ? strtoull(argv[2], NULL, 10) : 1) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
