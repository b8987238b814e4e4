/* The clients of the bench: a closed loop of keep-alive connections.
 *
 * Owns: sending one prepared request over and over, reading each response to its end, and timing what comes back.
 * Refuses to know: what the request says, and who answers.
 *
 * The request file holds whole HTTP requests, heads and bodies, with a NUL after each; they are sent in turn, by
 * whichever connection is free, until the time is up; responses under way are read to their end. A run of sixteen `@`
 * in a request becomes a number never sent before, in sixteen hexadecimal digits. Times are reported in microseconds.
 *
 * Of a chunked response the SSE events are timed: from the `sent_ns` stamp that upstream.c puts into each (the delay
 * that everything in between added), and from one event of a stream to the next (the gap). An event that came in the
 * same read as the one before it is counted as run.coalesced.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, HEAD_BYTES = 8 * 1024, EVENT_BYTES = 4096, MAX_ERRORS = 1000 };

static const char MARK[] = "@@@@@@@@@@@@@@@@";
enum { MARK_BYTES = sizeof MARK - 1 };

enum state { IDLE, HEAD, BODY, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

struct connection {
    struct source source;
    int fd;
    enum state state;
    char line[HEAD_BYTES]; /* the head, or a chunk-size or trailer line */
    size_t line_len;
    uint64_t left; /* bytes of the body or chunk still to come */
    bool last_response;
    char event[EVENT_BYTES];
    size_t event_len;
    uint64_t sent_ns, previous_event_ns, next_send_ns;
    bool first_byte_seen;
    /* What the socket would not take yet of a request: engines in this thread must read meanwhile. */
    char *out;
    size_t out_len;
};

struct samples {
    uint64_t *ns;
    size_t len, cap;
};

static struct {
    struct samples latency, first_byte, delay, gap;
    uint64_t events, coalesced, errors, reconnects;
    uint64_t start_ns, deadline_ns, pace_ns, next_due_ns;
    uint64_t events_in_this_read;
    uint16_t port;
    char *file;
    size_t file_len;
    char *request; /* the one to send next, inside of the file */
    uint64_t sends;
    struct connection *connections;
    size_t connections_len, busy;
    char first_error[160];
} run;

static void add(struct samples *s, uint64_t ns) {
    if (s->len == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 65536;
        s->ns = realloc(s->ns, s->cap * sizeof *s->ns);
        if (!s->ns) die("out of memory");
    }
    s->ns[s->len++] = ns;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_samples(FILE *out, const char *name, struct samples *s) {
    if (!s->len) {
        fprintf(out, ",\"%s\":null", name);
        return;
    }
    qsort(s->ns, s->len, sizeof *s->ns, by_value);
    fprintf(out, ",\"%s\":{\"p50\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, (double)s->ns[s->len / 2] / 1e3,
           (double)s->ns[s->len - 1 - s->len / 100] / 1e3, (double)s->ns[s->len - 1] / 1e3);
}

/* ---- connections ---- */

static void receive(struct source *source, uint32_t ready);

static void dial(struct connection *c) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(run.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    c->source.ready = receive;
    c->state = IDLE;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
    watch(&c->source, c->fd, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
}

static void forget_rest(struct connection *c) {
    free(c->out);
    c->out = NULL;
    c->out_len = 0;
}

static void redial(struct connection *c) {
    forget_rest(c);
    close(c->fd);
    run.reconnects++;
    dial(c);
}

static void retire(struct connection *c) {
    forget_rest(c);
    close(c->fd);
    c->fd = -1;
    run.busy--;
}

/* The next request, its length in *len. */
static const char *next_request(size_t *len) {
    char *request = run.request;
    *len = strlen(request);
    run.request += *len + 1;
    if (run.request >= run.file + run.file_len) run.request = run.file;
    return request;
}

static void number(char *request, size_t len) {
    static const char digits[] = "0123456789abcdef";
    uint64_t value = run.start_ns + run.sends++;
    for (char *at = request; (at = memmem(at, len - (size_t)(at - request), MARK, MARK_BYTES)); at += MARK_BYTES)
        for (int i = 0; i < MARK_BYTES; i++) at[i] = digits[value >> (60 - 4 * i) & 15];
}

static void keep_rest(struct connection *c, const char *data, size_t n) {
    c->out = malloc(n);
    if (!c->out) die("out of memory");
    memcpy(c->out, data, c->out_len = n);
    watch(&c->source, c->fd, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
}

static void send_rest(struct connection *c) {
    ssize_t n = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (n < 0) return;
    c->out_len -= (size_t)n;
    memmove(c->out, c->out + n, c->out_len);
    if (c->out_len) return;
    forget_rest(c);
    watch(&c->source, c->fd, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
}

static void fire(struct connection *c) {
    size_t at = 0, len;
    static char *copy;
    static size_t copy_cap;
    const char *request = next_request(&len);
    if (len > copy_cap) {
        copy = realloc(copy, copy_cap = len);
        if (!copy) die("out of memory");
    }
    memcpy(copy, request, len);
    number(copy, len);
    c->state = HEAD;
    c->line_len = c->event_len = 0;
    c->first_byte_seen = c->last_response = false;
    c->sent_ns = now_ns();
    c->previous_event_ns = 0;
    while (at < len) {
        ssize_t n = send(c->fd, copy + at, len - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            keep_rest(c, copy + at, len - at);
            return;
        }
        if (n < 0) return; /* the read that follows reports the close */
        at += (size_t)n;
    }
}

static void wait_until(uint64_t due_ns) {
    if (due_ns < run.next_due_ns) run.next_due_ns = due_ns;
}

static void go_on(struct connection *c) {
    uint64_t now = now_ns();
    c->state = IDLE;
    if (now >= run.deadline_ns) {
        retire(c);
    } else if (!run.pace_ns) {
        fire(c);
    } else {
        c->next_send_ns += run.pace_ns;
        if (c->next_send_ns < now) c->next_send_ns = now;
        wait_until(c->next_send_ns);
    }
}

static void fail(struct connection *c, const char *why) {
    run.errors++;
    if (!run.first_error[0]) snprintf(run.first_error, sizeof run.first_error, "%s", why);
    if (run.errors >= MAX_ERRORS) run.deadline_ns = 0;
    redial(c);
    go_on(c);
}

static void finish(struct connection *c) {
    add(&run.latency, now_ns() - c->sent_ns);
    if (c->last_response) redial(c);
    go_on(c);
}

/* ---- responses ---- */

static void take_event(struct connection *c, uint64_t now) {
    char *stamp = memmem(c->event, c->event_len, "\"sent_ns\":", 10);
    run.events++;
    if (run.events_in_this_read++) run.coalesced++;
    if (stamp) {
        uint64_t sent = strtoull(stamp + 10, NULL, 10);
        add(&run.delay, now > sent ? now - sent : 0);
    }
    if (c->previous_event_ns) add(&run.gap, now - c->previous_event_ns);
    c->previous_event_ns = now;
    c->event_len = 0;
}

static void take_payload(struct connection *c, const char *data, size_t n, uint64_t now) {
    while (n) {
        const char *newline = memchr(data, '\n', n);
        size_t part = newline ? (size_t)(newline - data) + 1 : n;
        bool blank = newline && part == 1 && c->event_len && c->event[c->event_len - 1] == '\n';
        size_t room = EVENT_BYTES - 1 - c->event_len;
        size_t copied = part < room ? part : room;
        memcpy(c->event + c->event_len, data, copied);
        c->event_len += copied;
        c->event[c->event_len] = 0;
        if (blank) take_event(c, now);
        data += part;
        n -= part;
    }
}

/* NULL, or why the head cannot be used. */
static const char *take_head(struct connection *c) {
    bool framed = false;
    char *end = c->line + c->line_len;
    c->line[c->line_len] = 0;
    if (c->line_len < 12 || memcmp(c->line, "HTTP/1.1 ", 9)) return "the response does not begin with HTTP/1.1";
    if (memcmp(c->line + 9, "200", 3)) return c->line;
    for (char *line = c->line; (line = memchr(line, '\n', (size_t)(end - line))) && ++line < end;) {
        if (!strncasecmp(line, "content-length:", 15)) {
            c->left = strtoull(line + 15, NULL, 10);
            c->state = BODY;
            framed = true;
        } else if (!strncasecmp(line, "transfer-encoding: chunked", 26)) {
            c->state = CHUNK_SIZE;
            framed = true;
        } else if (!strncasecmp(line, "connection: close", 17)) {
            c->last_response = true;
        }
    }
    c->line_len = 0;
    return framed ? NULL : "the response has neither content-length nor chunked coding";
}

/* Bytes consumed; `*done` when the line with its end is in c->line. */
static size_t take_line(struct connection *c, const char *data, size_t n, bool *done) {
    const char *newline = memchr(data, '\n', n);
    size_t part = newline ? (size_t)(newline - data) + 1 : n;
    size_t room = HEAD_BYTES - 1 - c->line_len;
    memcpy(c->line + c->line_len, data, part < room ? part : room);
    c->line_len += part < room ? part : room;
    *done = newline != NULL;
    return part;
}

static bool ends_head(const struct connection *c) {
    return c->line_len >= 4 && !memcmp(c->line + c->line_len - 4, "\r\n\r\n", 4);
}

static void take_bytes(struct connection *c, const char *data, size_t n, uint64_t now) {
    while (n && c->state != IDLE) {
        size_t used = 0;
        bool done = false;
        const char *bad = NULL;
        switch (c->state) {
        case HEAD:
            used = take_line(c, data, n, &done);
            if (done && ends_head(c)) bad = take_head(c);
            else if (c->line_len == HEAD_BYTES - 1) bad = "the response head is too long";
            if (!bad && c->state == BODY && !c->left) finish(c);
            break;
        case BODY:
        case CHUNK_DATA:
            used = n < c->left ? n : (size_t)c->left;
            c->left -= used;
            if (c->state == CHUNK_DATA) {
                take_payload(c, data, used, now);
                if (!c->left) c->state = CHUNK_END;
            } else if (!c->left) {
                finish(c);
            }
            break;
        case CHUNK_SIZE:
            used = take_line(c, data, n, &done);
            if (!done) break;
            c->line[c->line_len] = 0;
            c->left = strtoull(c->line, NULL, 16);
            c->line_len = 0;
            c->state = c->left ? CHUNK_DATA : TRAILER;
            break;
        case CHUNK_END:
            used = take_line(c, data, n, &done);
            if (done) c->line_len = 0, c->state = CHUNK_SIZE;
            break;
        case TRAILER:
            used = take_line(c, data, n, &done);
            if (done && c->line_len <= 2) finish(c);
            if (done) c->line_len = 0;
            break;
        case IDLE:
            break;
        }
        if (bad) {
            fail(c, bad);
            return;
        }
        data += used;
        n -= used;
    }
}

static void receive(struct source *source, uint32_t ready) {
    static char buffer[READ_BYTES];
    struct connection *c = (struct connection *)source;
    if (c->fd < 0) return;
    if (ready & EPOLLOUT && c->out) send_rest(c);
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        if (c->state == IDLE) redial(c); /* a server may close an idle connection */
        else fail(c, n ? "connection reset in the middle of a response" : "connection closed in the middle of a response");
        return;
    }
    uint64_t now = now_ns();
    if (!c->first_byte_seen) {
        c->first_byte_seen = true;
        add(&run.first_byte, now - c->sent_ns);
    }
    run.events_in_this_read = 0;
    take_bytes(c, buffer, (size_t)n, now);
}

/* ---- a run ---- */

static void read_requests(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) < 0) die(path);
    run.file_len = (size_t)ftell(file);
    rewind(file);
    run.file = run.request = malloc(run.file_len);
    if (!run.file || fread(run.file, 1, run.file_len, file) != run.file_len) die(path);
    fclose(file);
    if (!run.file_len || run.file[run.file_len - 1]) {
        fprintf(stderr, "driver: %s: the last request does not end with a NUL\n", path);
        exit(2);
    }
}

void load_start(const struct load_plan *plan) {
    run.port = plan->port;
    read_requests(plan->path);
    run.connections = calloc(plan->connections, sizeof *run.connections);
    if (!run.connections) die("out of memory");
    run.connections_len = run.busy = plan->connections;
    for (size_t i = 0; i < run.connections_len; i++) dial(&run.connections[i]);
    run.start_ns = now_ns();
    run.deadline_ns = run.start_ns + (uint64_t)(plan->seconds * 1e9);
    if (plan->rate > 0) run.pace_ns = (uint64_t)(1e9 * (double)plan->connections / plan->rate);
    for (size_t i = 0; i < run.connections_len; i++)
        run.connections[i].next_send_ns = run.start_ns + run.pace_ns * i / run.connections_len;
}

bool load_running(void) {
    return run.busy > 0;
}

uint64_t load_next_due_ns(void) {
    return run.busy ? run.next_due_ns : UINT64_MAX;
}

void load_tick(uint64_t now) {
    if (now < run.next_due_ns) return;
    run.next_due_ns = UINT64_MAX;
    for (size_t i = 0; i < run.connections_len; i++) {
        struct connection *c = &run.connections[i];
        if (c->fd < 0 || c->state != IDLE) continue;
        if (now >= run.deadline_ns) retire(c);
        else if (c->next_send_ns <= now) fire(c);
        else wait_until(c->next_send_ns);
    }
}

void load_report(FILE *out) {
    double took = (double)(now_ns() - run.start_ns) / 1e9;
    fprintf(out, "{\"requests\":%zu,\"errors\":%llu,\"reconnects\":%llu,\"seconds\":%.3f,\"rate\":%.1f", run.latency.len,
            (unsigned long long)run.errors, (unsigned long long)run.reconnects, took, (double)run.latency.len / took);
    fprintf(out, ",\"events\":%llu,\"coalesced\":%llu", (unsigned long long)run.events, (unsigned long long)run.coalesced);
    print_samples(out, "latency_us", &run.latency);
    print_samples(out, "first_byte_us", &run.first_byte);
    print_samples(out, "event_delay_us", &run.delay);
    print_samples(out, "event_gap_us", &run.gap);
    fprintf(out, ",\"first_error\":\"");
    for (const char *p = run.first_error; *p && *p != '\r' && *p != '\n'; p++)
        if (*p != '"' && *p != '\\') fputc(*p, out);
    fprintf(out, "\"}\n");
    free(run.file);
    free(run.connections);
    free(run.latency.ns);
    free(run.first_byte.ns);
    free(run.delay.ns);
    free(run.gap.ns);
    memset(&run, 0, sizeof run);
}
