/* The engine's stand-in behind the gateways under test.
 *
 * Owns: a reply that costs next to nothing, and SSE streams whose events leave at a known pace, each stamped with
 * the moment it was sent. Refuses to know: JSON, models, gateways. Reads of a request only what framing needs.
 *
 * A POST with "stream":true in its body is answered with SSE, any other with a fixed JSON body; every GET with one that
 * holds what routers want to know of a replica before they use it (models, server information, health). Streams are
 * steered by fields of the OpenAI API, because some gateways drop unknown fields and headers:
 *   max_tokens   events before [DONE] (default 100)
 *   seed         microseconds between events (default 5000); negative: all streams tick together, at multiples of it,
 *                as the streams of one engine batch do
 * Times are CLOCK_MONOTONIC nanoseconds.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, MAX_HEAD_BYTES = 64 * 1024, EVENT_BYTES = 1024 };

static const char STREAM_HEAD[] = "HTTP/1.1 200 OK\r\n"
                                  "date: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
                                  "server: uvicorn\r\n"
                                  "cache-control: no-cache\r\n"
                                  "content-type: text/event-stream; charset=utf-8\r\n"
                                  "transfer-encoding: chunked\r\n\r\n";

static const char ABOUT[] = "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1704067200,"
                            "\"owned_by\":\"sglang\",\"root\":\"bench\",\"max_model_len\":32768}],\"model_path\":\"bench\","
                            "\"served_model_name\":\"bench\",\"is_generation\":true,\"version\":\"0.5.23\"}";

struct connection {
    struct source source;
    int fd;
    bool wants_write;
    /* The request being read: bytes of head so far, then body bytes still to come. */
    char *in;
    size_t in_len, in_cap;
    /* What the socket would not take yet. */
    char *out;
    size_t out_len, out_cap;
    /* The stream being sent; events_left < 0: none. */
    long events_left;
    uint64_t interval_ns, due_ns;
    bool in_step;
    size_t heap_at;
    bool closing; /* the request asked for `connection: close` */
    struct connection *next_buried;
};

static char *reply;
static size_t reply_len;
static struct connection **heap;
static size_t heap_len, heap_cap;
static struct connection *buried;

/* ---- streams by the time of their next event: a binary heap ---- */

static void heap_put(size_t at, struct connection *c) {
    heap[at] = c;
    c->heap_at = at;
}

static void heap_up(struct connection *c) {
    size_t at = c->heap_at;
    while (at > 0 && heap[(at - 1) / 2]->due_ns > c->due_ns) {
        heap_put(at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(at, c);
}

static void heap_down(struct connection *c) {
    size_t at = c->heap_at;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap_len) break;
        if (child + 1 < heap_len && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        heap_put(at, heap[child]);
        at = child;
    }
    heap_put(at, c);
}

static void heap_add(struct connection *c) {
    if (heap_len == heap_cap) {
        heap_cap = heap_cap ? 2 * heap_cap : 64;
        heap = realloc(heap, heap_cap * sizeof *heap);
        if (!heap) die("out of memory");
    }
    heap_put(heap_len++, c);
    heap_up(c);
}

static void heap_remove(struct connection *c) {
    struct connection *last = heap[--heap_len];
    if (last == c) return;
    heap_put(c->heap_at, last);
    heap_up(last);
    heap_down(last);
}

uint64_t upstream_next_due_ns(void) {
    return heap_len ? heap[0]->due_ns : UINT64_MAX;
}

/* ---- sockets ---- */

static void bury(struct connection *c) {
    if (c->fd < 0) return;
    if (c->events_left >= 0) heap_remove(c);
    close(c->fd);
    c->fd = -1;
    c->next_buried = buried;
    buried = c;
}

void upstream_sweep(void) {
    while (buried) {
        struct connection *c = buried;
        buried = c->next_buried;
        free(c->in);
        free(c->out);
        free(c);
    }
}

static void keep(char **buffer, size_t *len, size_t *cap, const char *data, size_t n) {
    if (*len + n > *cap) {
        *cap = (*len + n) * 2;
        *buffer = realloc(*buffer, *cap);
        if (!*buffer) die("out of memory");
    }
    memcpy(*buffer + *len, data, n);
    *len += n;
}

/* False: the peer is gone. */
static bool send_all(struct connection *c, const char *data, size_t n) {
    if (!c->out_len) {
        ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) sent = 0;
        data += sent;
        n -= (size_t)sent;
    }
    if (!n) return true;
    keep(&c->out, &c->out_len, &c->out_cap, data, n);
    if (!c->wants_write) {
        c->wants_write = true;
        watch(&c->source, c->fd, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP | EPOLLOUT);
    }
    return true;
}

static bool flush(struct connection *c) {
    ssize_t sent = send(c->fd, c->out, c->out_len, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN;
    c->out_len -= (size_t)sent;
    memmove(c->out, c->out + sent, c->out_len);
    if (!c->out_len) {
        c->wants_write = false;
        watch(&c->source, c->fd, EPOLL_CTL_MOD, EPOLLIN | EPOLLRDHUP);
    }
    return true;
}

/* ---- replies ---- */

static bool send_event(struct connection *c) {
    char event[EVENT_BYTES];
    char framed[EVENT_BYTES + 16];
    int n, m;
    if (c->events_left > 0)
        n = snprintf(event, sizeof event,
                     "data: {\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion.chunk\","
                     "\"created\":1704067200,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":"
                     "\" token\"},\"logprobs\":null,\"finish_reason\":null}],\"sent_ns\":%llu}\n\n",
                     (unsigned long long)now_ns());
    else
        n = snprintf(event, sizeof event, "data: [DONE]\n\n");
    m = snprintf(framed, sizeof framed, "%x\r\n%s\r\n%s", (unsigned)n, event, c->events_left > 0 ? "" : "0\r\n\r\n");
    return send_all(c, framed, (size_t)m);
}

static uint64_t next_due(const struct connection *c, uint64_t from_ns) {
    if (!c->in_step) return from_ns + c->interval_ns;
    return (from_ns / c->interval_ns + 1) * c->interval_ns;
}

/* The streams do not start on a common beat by themselves: a closed loop of clients would open them together. */
static uint64_t first_due(const struct connection *c) {
    if (c->in_step) return next_due(c, now_ns());
    return now_ns() + c->interval_ns / 2 + (uint64_t)rand() % c->interval_ns;
}

void upstream_tick(uint64_t now) {
    while (heap_len && heap[0]->due_ns <= now) {
        struct connection *c = heap[0];
        if (!send_event(c)) {
            bury(c);
            continue;
        }
        if (c->events_left == 0) {
            heap_remove(c);
            c->events_left = -1;
            if (c->closing) bury(c);
            continue;
        }
        c->events_left--;
        c->due_ns = next_due(c, c->due_ns);
        heap_down(c);
    }
}

static long field(const char *body, size_t len, const char *name, long otherwise) {
    const char *at = memmem(body, len, name, strlen(name));
    if (!at) return otherwise;
    at += strlen(name);
    while (*at == ' ' || *at == ':') at++;
    return strtol(at, NULL, 10);
}

static bool answer_get(struct connection *c) {
    char about[1024];
    int n = snprintf(about, sizeof about,
                     "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %zu\r\ncontent-type: application/json\r\n\r\n%s",
                     sizeof ABOUT - 1, ABOUT);
    return send_all(c, about, (size_t)n);
}

/* `body` is followed by a NUL. */
static bool answer(struct connection *c, const char *body, size_t len) {
    bool stream = memmem(body, len, "\"stream\":true", 13) || memmem(body, len, "\"stream\": true", 14);
    if (!stream) return send_all(c, reply, reply_len);
    long events = field(body, len, "\"max_tokens\"", 100);
    long interval_us = field(body, len, "\"seed\"", 5000);
    c->in_step = interval_us < 0;
    c->interval_ns = (uint64_t)labs(interval_us ? interval_us : 1) * 1000u;
    c->events_left = events < 0 ? 0 : events;
    c->due_ns = first_due(c);
    heap_add(c);
    return send_all(c, STREAM_HEAD, sizeof STREAM_HEAD - 1);
}

static bool refuse(struct connection *c, const char *status) {
    char head[128];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", status);
    send_all(c, head, (size_t)n);
    return false;
}

/* Answers every complete request in the buffer. False: the connection is to be closed. */
static bool take_requests(struct connection *c) {
    size_t at = 0;
    while (c->events_left < 0 && at < c->in_len) {
        char *start = c->in + at;
        size_t have = c->in_len - at;
        char *end = memmem(start, have, "\r\n\r\n", 4);
        if (!end) {
            if (have > MAX_HEAD_BYTES) return refuse(c, "431 Request Header Fields Too Large");
            break;
        }
        size_t head = (size_t)(end - start) + 4, body = 0;
        for (char *line = memchr(start, '\n', head); line && line < end; line = memchr(line, '\n', (size_t)(end + 2 - line))) {
            line++;
            if (!strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
            if (!strncasecmp(line, "transfer-encoding:", 18)) return refuse(c, "411 Length Required");
            if (!strncasecmp(line, "connection: close", 17)) c->closing = true;
        }
        if (have < head + body) break;
        char after = start[head + body];
        start[head + body] = 0;
        if (!(memcmp(start, "GET ", 4) ? answer(c, start + head, body) : answer_get(c))) return false;
        start[head + body] = after;
        at += head + body;
        if (c->closing && c->events_left < 0) return false;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
    return true;
}

static bool receive(struct connection *c) {
    static char buffer[READ_BYTES];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    keep(&c->in, &c->in_len, &c->in_cap, buffer, (size_t)n);
    if (c->in_len == c->in_cap) keep(&c->in, &c->in_len, &c->in_cap, "", 1), c->in_len--; /* room for a NUL */
    return take_requests(c);
}

static void serve(struct source *source, uint32_t ready) {
    struct connection *c = (struct connection *)source;
    bool alive = c->fd >= 0;
    if (alive && ready & EPOLLOUT) alive = flush(c);
    if (alive && ready & ~(uint32_t)EPOLLOUT) alive = receive(c);
    if (!alive) bury(c);
}

static struct connection *new_connection(int fd, void (*ready)(struct source *, uint32_t)) {
    struct connection *c = calloc(1, sizeof *c);
    if (!c) die("out of memory");
    c->source.ready = ready;
    c->fd = fd;
    c->events_left = -1;
    return c;
}

static void accept_all(struct source *source, uint32_t ready) {
    int fd, on = 1, listener = ((struct connection *)source)->fd;
    (void)ready;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(&new_connection(fd, serve)->source, fd, EPOLL_CTL_ADD, EPOLLIN | EPOLLRDHUP);
    }
}

int upstream_listen(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4096) < 0) die("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0) die("getsockname");
    watch(&new_connection(fd, accept_all)->source, fd, EPOLL_CTL_ADD, EPOLLIN);
    return ntohs(address.sin_port);
}

void upstream_set_reply(size_t bytes) {
    static const char open[] = "{\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":\"chat.completion\","
                               "\"created\":1704067200,\"model\":\"bench\",\"choices\":[{\"index\":0,\"message\":"
                               "{\"role\":\"assistant\",\"content\":\"";
    static const char close[] = "\",\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":"
                                "{\"prompt_tokens\":200,\"total_tokens\":400,\"completion_tokens\":200}}";
    size_t fixed = sizeof open + sizeof close - 2;
    size_t text = bytes > fixed ? bytes - fixed : 0;
    reply = malloc(fixed + text + 512);
    if (!reply) die("out of memory");
    int head = sprintf(reply,
                       "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
                       "content-length: %zu\r\ncontent-type: application/json\r\n\r\n%s",
                       fixed + text, open);
    memset(reply + head, 'a', text);
    strcpy(reply + head + text, close);
    reply_len = (size_t)head + text + sizeof close - 1;
}
