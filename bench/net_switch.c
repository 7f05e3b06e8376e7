/* SPDX-License-Identifier: Apache-2.0
 *
 * net_switch.c: an Ethernet switch in user space for bench/tcp: ports with a rate, links with a delay, a bounded queue.
 *
 * usage: net_switch PORTS MBIT_PER_S ONE_WAY_US QUEUE_BYTES. Makes the taps tsw0.. and forwards between them until its
 * standard input ends; the host behind port i must have the hardware address 02:54:52:49:00:<i>. Segmentation is left
 * to the hosts (virtio heads pass through), so one packet may stand for many on the wire: it takes their time.
 */
#define _GNU_SOURCE /* ppoll */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX   16
#define HEAD_NBYTES ((int)sizeof(struct virtio_net_hdr))
#define FRAME_MAX   (HEAD_NBYTES + 70000)
#define BURST       32 /* packets taken from one port before the others have their turn */

typedef struct packet {
    struct packet *next;
    int64_t due_ns;
    int nbytes;
    unsigned char bytes[];
} packet;

typedef struct port {
    int fd;
    int64_t sent_ns, received_ns; /* when its cable is free again, each way */
    packet *first, *last;         /* on the way to it, in order */
} port;

static port ports[PORTS_MAX];
static int port_count;
static double ns_per_byte;
static int64_t delay_ns, queue_ns;
static long forwarded, dropped;

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int tap_open(int index)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK), head = HEAD_NBYTES;

    snprintf(request.ifr_name, sizeof request.ifr_name, "tsw%d", index);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0 || ioctl(fd, TUNSETVNETHDRSZ, &head) != 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
        perror("net_switch: tap");
        exit(1);
    }
    return fd;
}

/* Time on a cable: every segment has heads of its own, preamble, check and gap. */
static int64_t wire_ns(const unsigned char *bytes, int nbytes, int64_t *first_ns)
{
    const struct virtio_net_hdr *head = (const struct virtio_net_hdr *)(const void *)bytes;
    int payload = nbytes - HEAD_NBYTES - head->hdr_len, segments = 1, one = nbytes - HEAD_NBYTES;

    if (head->gso_type != VIRTIO_NET_HDR_GSO_NONE && head->gso_size > 0 && payload > head->gso_size) {
        segments = (payload + head->gso_size - 1) / head->gso_size;
        one = head->hdr_len + head->gso_size;
    }
    *first_ns = (int64_t)((one + 24) * ns_per_byte);
    return (int64_t)((nbytes - HEAD_NBYTES + (segments - 1) * head->hdr_len + segments * 24) * ns_per_byte);
}

static void packet_forward(int from, const unsigned char *bytes, int nbytes)
{
    const unsigned char *to = bytes + HEAD_NBYTES;
    int64_t first_ns, wire = wire_ns(bytes, nbytes, &first_ns), start_ns = now_ns();

    if (ports[from].sent_ns > start_ns)
        start_ns = ports[from].sent_ns;
    ports[from].sent_ns = start_ns + wire;
    for (int i = 0; i < port_count; i++) {
        port *out = &ports[i];
        int64_t begin_ns = start_ns + first_ns;
        packet *copy;

        if (i == from || (!(to[0] & 1) && to[5] != i))
            continue;
        if (out->received_ns > begin_ns)
            begin_ns = out->received_ns;
        if (begin_ns - start_ns - first_ns > queue_ns || !(copy = malloc(sizeof *copy + (size_t)nbytes))) {
            dropped++;
            continue;
        }
        out->received_ns = begin_ns + wire;
        *copy = (packet){.due_ns = out->received_ns + delay_ns, .nbytes = nbytes};
        memcpy(copy->bytes, bytes, (size_t)nbytes);
        if (out->last)
            out->last->next = copy;
        else
            out->first = copy;
        out->last = copy;
        forwarded++;
    }
}

/* Hands over what is due; returns when the next one is, or -1. */
static int64_t packets_deliver(void)
{
    int64_t next_ns = -1;

    for (int i = 0; i < port_count; i++) {
        port *out = &ports[i];

        while (out->first && out->first->due_ns <= now_ns()) {
            packet *done = out->first;

            if (write(out->fd, done->bytes, (size_t)done->nbytes) < 0)
                dropped++;
            out->first = done->next;
            if (!out->first)
                out->last = NULL;
            free(done);
        }
        if (out->first && (next_ns < 0 || out->first->due_ns < next_ns))
            next_ns = out->first->due_ns;
    }
    return next_ns;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[FRAME_MAX];
    struct pollfd polls[PORTS_MAX + 1];

    if (argc != 5 || (port_count = atoi(argv[1])) < 2 || port_count > PORTS_MAX)
        return 2;
    ns_per_byte = 8e3 / atof(argv[2]);
    delay_ns = atoll(argv[3]) * 1000;
    queue_ns = (int64_t)(atof(argv[4]) * ns_per_byte);
    prctl(PR_SET_TIMERSLACK, 1000);
    for (int i = 0; i < port_count; i++) {
        ports[i].fd = tap_open(i);
        polls[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    }
    polls[port_count] = (struct pollfd){.fd = 0, .events = POLLIN};
    puts("ready");
    fflush(stdout);
    while (!polls[port_count].revents) {
        int64_t next_ns = packets_deliver(), wait_ns = next_ns < 0 ? 1000000000 : next_ns - now_ns();
        struct timespec limit = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns > 0 ? wait_ns % 1000000000 : 0};

        if (wait_ns < 0)
            limit.tv_sec = 0;
        if (ppoll(polls, (nfds_t)port_count + 1, &limit, NULL) <= 0)
            continue;
        for (int i = 0; i < port_count; i++) {
            for (int k = 0; (polls[i].revents & POLLIN) && k < BURST; k++) {
                ssize_t got = read(ports[i].fd, bytes, sizeof bytes);

                if (got <= HEAD_NBYTES + 14)
                    break;
                packet_forward(i, bytes, (int)got);
            }
        }
    }
    fprintf(stderr, "net_switch: %ld packets forwarded, %ld dropped\n", forwarded, dropped);
    return 0;
}
