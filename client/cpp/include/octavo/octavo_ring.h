/* A producer's ring: a program on the server's host (for a digitizer, say) writes raw records into
 * memory that it shares with octavod, and octavod uploads them from there without a copy. C11 and
 * C++11; GCC or Clang on Linux. This header needs no library but the C library.
 * Licence: Apache-2.0.
 *
 * First submit a scan with source `ring` (`octavo scan submit --source ring …`). Then request a
 * ticket, which prints the socket's path and the ticket:
 *   octavo scan ring scans/<id>
 * or call Client::OpenRing (client/cpp/include/octavo/octavo.h) or IngestService.OpenRing. The
 * ticket is valid once, for half a minute, for the user that requested it. Then, from one thread (a
 * ring has one producer):
 *
 *   octavo_ring ring;
 *   char error[512];
 *   if (octavo_ring_open(&ring, socket_path, ticket, error, sizeof error) != 0) {
 *     puts(error);
 *     return 1;
 *   }
 *   for (;;) {
 *     // Room for ring.block_records records of ring.record_bytes.
 *     void* slot = octavo_ring_begin(&ring, 100);
 *     if (slot == NULL && errno == EAGAIN) {
 *       // The ring is full: wait again, or give up the records that came meanwhile.
 *       octavo_ring_drop(&ring, records_lost);
 *       continue;
 *     }
 *     if (slot == NULL) break;  // EPIPE: the scan wants no more records
 *     fill(slot, ring.next_record, records);
 *     octavo_ring_publish(&ring, records);
 *   }
 *   octavo_ring_end(&ring);  // no more records will come
 *   octavo_ring_close(&ring);
 *
 * Every record has a number, counted from the start of the scan; ring.next_record is the number of
 * the record to write next. octavo_ring_drop, or setting ring.next_record, leaves a gap: its
 * A-scans will be missing, and later records keep their places. The server counts and ignores
 * records that it already has. A producer that dies, at any instant, loses only unpublished
 * records; another one can get a new ticket for the same scan and continue at its own
 * ring.next_record. After octavo_ring_close without octavo_ring_end the scan waits for the next
 * producer (Ring.restart_grace).
 *
 * The ring of a job (`octavo job ring jobs/<id>`, of a tomography job whose input is `push`) takes
 * frames: ring.of_job is 1, a slot holds one frame of ring.rows x ring.columns pixels
 * (ring.record_bytes), and each frame is published with its number in the scan, its kind and its
 * angle:
 *
 *   for (;;) {
 *     void* slot = octavo_ring_begin(&ring, -1);
 *     if (slot == NULL) break;  // EPIPE: the job wants no more frames
 *     if (!grab(slot)) break;
 *     if (octavo_ring_publish_frame(&ring, sequence, OCTAVO_RING_PROJECTION, angle) != 0) break;
 *   }
 *   octavo_ring_end(&ring);  // this program sends no more frames
 *
 * Frames may come in any order, and from other programs and clients, too (PushProjections). A frame
 * that is not published is missing; ring.next_record is the first frame that the job lacked when
 * the ring was opened. octavo_ring_publish, octavo_ring_publish_at and octavo_ring_drop are for
 * scans, octavo_ring_publish_frame is for jobs: the wrong one publishes nothing, and from then on
 * octavo_ring_begin and octavo_ring_trouble say EINVAL.
 */
#ifndef OCTAVO_RING_H_
#define OCTAVO_RING_H_

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The memory. Numbers have the machine's byte order, read and written atomically. ---- */

#define OCTAVO_RING_MAGIC 0x474E49524F54434FULL /* the bytes "OCTORING" */
#define OCTAVO_RING_VERSION 1u
#define OCTAVO_RING_PAGE 4096
#define OCTAVO_RING_TEXT 256

/* Page 0: constants. */
typedef struct octavo_ring_facts {
  uint64_t magic;
  uint32_t version;
  uint32_t flags; /* OCTAVO_RING_MAY_WAIT, OCTAVO_RING_OF_JOB */
  uint64_t total_bytes;
  uint64_t descriptor_offset; /* of octavo_ring_descriptor[slots] */
  uint64_t data_offset;       /* of slot 0 */
  uint64_t slot_bytes;        /* block_records * record_bytes: the next slot begins there */
  uint32_t slots;
  uint32_t block_records; /* most records of a slot */
  uint32_t record_bytes;
  uint32_t samples_per_record;
  uint32_t raw_type;      /* octavo.v1.RawType */
  uint32_t channels;      /* interleaved in a record */
  uint64_t total_records; /* that the scan wants; 0 = until stopped; of a job its frames */
  uint32_t rows, columns; /* of a frame, with OCTAVO_RING_OF_JOB; else 0 */
} octavo_ring_facts;
/* The scan knows that its producer waits while the ring is full. */
#define OCTAVO_RING_MAY_WAIT 1u
/* A slot takes one frame, which is its only record. */
#define OCTAVO_RING_OF_JOB 2u

enum octavo_ring_state { OCTAVO_RING_QUEUED = 0, OCTAVO_RING_RUNNING = 1, OCTAVO_RING_CLOSED = 2 };

/* Page 1: written by the server. `bell` moves with each change of released, state and attachment.
 */
typedef struct octavo_ring_server {
  uint64_t released;    /* slots given back, from the beginning */
  uint32_t bell;        /* futex */
  uint32_t state;       /* octavo_ring_state */
  uint32_t waits;       /* the server waits on octavo_ring_producer.bell */
  uint32_t error_code;  /* google.rpc.Code: why the producer was cut off; 0 = it was not */
  uint64_t attachment;  /* of the producer that may write */
  uint64_t next_record; /* records before it were accepted or are given up */
  uint64_t records, lost_records, duplicate_records, out_of_range_records, broken_blocks;
  uint64_t padding[22];
  char error[OCTAVO_RING_TEXT];
} octavo_ring_server;

enum octavo_ring_producer_state {
  OCTAVO_RING_FEEDING = 0,
  OCTAVO_RING_ENDED = 1,
  OCTAVO_RING_FAILED = 2
};

/* Page 2: written by the producer. */
typedef struct octavo_ring_producer {
  uint64_t
      published;  /* slots filled, from the beginning; set by the server when a producer attaches */
  uint32_t bell;  /* futex; moves with each change */
  uint32_t state; /* octavo_ring_producer_state */
  uint32_t waits; /* the producer waits on octavo_ring_server.bell */
  uint32_t reserved;
  uint64_t next_record; /* that it would write next */
  uint64_t overruns;    /* times that it dropped records because the ring was full */
  uint64_t overrun_records;
  uint64_t padding[26];
  char error[OCTAVO_RING_TEXT]; /* of OCTAVO_RING_FAILED */
} octavo_ring_producer;

/* One per slot, written before the slot is published. */
typedef struct octavo_ring_descriptor {
  uint64_t number; /* of the block: published before it */
  uint64_t first_record;
  uint32_t records;
  uint32_t flags;  /* OCTAVO_RING_OVERRUN, OCTAVO_RING_FRAME */
  int64_t time_ns; /* CLOCK_MONOTONIC at its last record; 0 = now */
  /* With OCTAVO_RING_FRAME; else they are reserved. */
  uint64_t sequence;   /* of the frame, counted over all kinds in the order of the scan */
  uint64_t kind;       /* octavo_ring_frame_kind */
  uint64_t angle_bits; /* of a double, in radians; of a projection */
  uint64_t reserved;
} octavo_ring_descriptor;
/* Records before the block were dropped because the ring was full. */
#define OCTAVO_RING_OVERRUN 1u
/* The block is a frame. */
#define OCTAVO_RING_FRAME 2u

/* As octavo.v1.PushProjectionsRequest.Kind. */
enum octavo_ring_frame_kind {
  OCTAVO_RING_PROJECTION = 1, /* the object, at an angle */
  OCTAVO_RING_FLAT = 2,       /* light without the object */
  OCTAVO_RING_DARK = 3        /* neither light nor object */
};

/* ---- The producer. Its functions are for one thread. ---- */

typedef struct octavo_ring {
  /* To read. */
  uint32_t slots, block_records, record_bytes, samples_per_record, raw_type, channels;
  uint64_t total_records; /* that the scan wants; 0 = until stopped; of a job its frames */
  /* 1: the ring of a job, which takes frames of rows x columns pixels of raw_type. */
  uint32_t of_job, rows, columns;
  /* The number of the record to write next. May be set forwards: skipped records are lost. Of a
   * job: the frame behind the one that was published last. */
  uint64_t next_record;
  /* Private. */
  int socket_fd;
  char* memory;
  octavo_ring_facts facts; /* as they were when the ring was opened */
  uint64_t published, attachment;
  uint32_t pending_flags;
  int misuse; /* EINVAL: it was fed in a way that is not for this ring */
} octavo_ring;

static inline octavo_ring_server* octavo_ring_server_of(const octavo_ring* ring) {
  return (octavo_ring_server*)(void*)(ring->memory + OCTAVO_RING_PAGE);
}
static inline octavo_ring_producer* octavo_ring_producer_of(const octavo_ring* ring) {
  return (octavo_ring_producer*)(void*)(ring->memory + 2 * OCTAVO_RING_PAGE);
}

static inline void octavo_ring_say(char* error, size_t bytes, const char* what, const char* more) {
  if (error != NULL && bytes > 0)
    snprintf(error, bytes, "%s%s%s", what, more[0] != '\0' ? ": " : "", more);
}

/* Maps the ring of which `memory_fd` is the descriptor. Does not keep the descriptor. 0, or -1 with
 * errno and `error`. */
static inline int octavo_ring_map(octavo_ring* ring, int memory_fd, char* error,
                                  size_t error_bytes) {
  struct stat info;
  octavo_ring_facts facts;
  memset(ring, 0, sizeof *ring);
  ring->socket_fd = -1;
  if (fstat(memory_fd, &info) != 0 || info.st_size < 3 * OCTAVO_RING_PAGE) {
    octavo_ring_say(error, error_bytes, "the descriptor is none of a ring", "");
    errno = EPROTO;
    return -1;
  }
  void* at = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                  memory_fd, 0);
  if (at == MAP_FAILED) {
    octavo_ring_say(error, error_bytes, "cannot map the ring", strerror(errno));
    return -1;
  }
  memcpy(&facts, at, sizeof facts);
  if (facts.magic != OCTAVO_RING_MAGIC || facts.version != OCTAVO_RING_VERSION ||
      facts.total_bytes != (uint64_t)info.st_size || facts.slots == 0 ||
      facts.slot_bytes != (uint64_t)facts.block_records * facts.record_bytes ||
      facts.data_offset > facts.total_bytes || facts.descriptor_offset > facts.data_offset ||
      facts.descriptor_offset < 3 * OCTAVO_RING_PAGE || facts.descriptor_offset % 8 != 0 ||
      (uint64_t)facts.slots * sizeof(octavo_ring_descriptor) >
          facts.data_offset - facts.descriptor_offset ||
      facts.slot_bytes > (facts.total_bytes - facts.data_offset) / facts.slots) {
    octavo_ring_say(error, error_bytes, "the memory is no ring that this program knows",
                    facts.magic == OCTAVO_RING_MAGIC ? "another version" : "");
    munmap(at, (size_t)info.st_size);
    errno = EPROTO;
    return -1;
  }
  ring->memory = (char*)at;
  ring->facts = facts;
  ring->slots = facts.slots;
  ring->block_records = facts.block_records;
  ring->record_bytes = facts.record_bytes;
  ring->samples_per_record = facts.samples_per_record;
  ring->raw_type = facts.raw_type;
  ring->channels = facts.channels;
  ring->total_records = facts.total_records;
  ring->of_job = (facts.flags & OCTAVO_RING_OF_JOB) != 0 ? 1 : 0;
  ring->rows = ring->of_job ? facts.rows : 0;
  ring->columns = ring->of_job ? facts.columns : 0;
  ring->attachment = __atomic_load_n(&octavo_ring_server_of(ring)->attachment, __ATOMIC_ACQUIRE);
  ring->next_record = __atomic_load_n(&octavo_ring_server_of(ring)->next_record, __ATOMIC_ACQUIRE);
  ring->published = __atomic_load_n(&octavo_ring_producer_of(ring)->published, __ATOMIC_ACQUIRE);
  return 0;
}

/* ---- The hand-over wire (proto/octavo/handoff/v1/handoff.proto). This program needs two messages
 * of it, and reads the answers field by field, as protobuf encodes them. ---- */

#define OCTAVO_RING_WIRE_VERSION 1u

/* ClientMessage.hello: versions 1 to 1 (OCTAVO_RING_WIRE_VERSION), PURPOSE_RING. */
static const unsigned char octavo_ring_hello[] = {0x1a, 8, 0x0a, 4, 0x08, 1, 0x10, 1, 0x10, 3};

/* Fields of the answers. */
enum octavo_ring_wire_field {
  OCTAVO_RING_WELCOME = 3, /* of ServerMessage */
  OCTAVO_RING_REFUSED = 4,
  OCTAVO_RING_RING = 9,
  OCTAVO_RING_WELCOME_VERSION = 1,
  OCTAVO_RING_REFUSED_REASON = 2,
  OCTAVO_RING_REFUSED_MESSAGE = 3
};

/* A part of a message: bytes, or the value of a number. */
typedef struct octavo_ring_part {
  const unsigned char* bytes;
  size_t length;
  uint64_t value;
} octavo_ring_part;

static inline int octavo_ring_varint(octavo_ring_part* rest, uint64_t* value) {
  int shift;
  *value = 0;
  for (shift = 0; shift < 64 && rest->length > 0; shift += 7) {
    const unsigned char byte = *rest->bytes;
    ++rest->bytes;
    --rest->length;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return 1;
  }
  return 0;
}

/* Field `number` of `message`, the last one if there are several; others are passed over. 1, 0 if
 * there is none, -1 if the bytes are no message. */
static inline int octavo_ring_field(octavo_ring_part message, uint32_t number,
                                    octavo_ring_part* field) {
  int found = 0;
  while (message.length > 0) {
    octavo_ring_part part = {NULL, 0, 0};
    uint64_t tag;
    if (!octavo_ring_varint(&message, &tag)) return -1;
    switch (tag & 7) {
      case 0:
        if (!octavo_ring_varint(&message, &part.value)) return -1;
        break;
      case 1: part.length = 8; break;
      case 2:
        if (!octavo_ring_varint(&message, &part.value) || part.value > message.length) return -1;
        part.length = (size_t)part.value;
        break;
      case 5: part.length = 4; break;
      default: /* groups, which proto3 does not have */ return -1;
    }
    if (part.length > message.length) return -1;
    part.bytes = message.bytes;
    message.bytes += part.length;
    message.length -= part.length;
    if (tag >> 3 == number) {
      *field = part;
      found = 1;
    }
  }
  return found;
}

/* Receives a packet and, with it, at most one descriptor (-1 = none). Its bytes, 0 at the end of
 * the connection, or -1 with errno. */
static inline ssize_t octavo_ring_receive(int connection, void* bytes, size_t room,
                                          int* descriptor) {
  struct msghdr message;
  struct iovec part;
  struct cmsghdr* rights;
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  ssize_t got;
  memset(&message, 0, sizeof message);
  part.iov_base = bytes;
  part.iov_len = room;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  do {
    got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  *descriptor = -1;
  for (rights = got < 0 ? NULL : CMSG_FIRSTHDR(&message); rights != NULL;
       rights = CMSG_NXTHDR(&message, rights)) {
    if (rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
      memcpy(descriptor, CMSG_DATA(rights), sizeof *descriptor);
  }
  return got;
}

/* Receives the answer whose body is the field `wanted`. 0, or -1 with errno and `error`: EACCES
 * (the server refuses, and says why), EPROTO (it speaks no version of the wire that this program
 * knows, or answers something else), ECONNRESET. */
static inline int octavo_ring_answer(int connection, uint32_t wanted, int* descriptor, char* error,
                                     size_t error_bytes) {
  unsigned char bytes[8192]; /* a Refused has at most 8000 */
  octavo_ring_part message = {bytes, 0, 0}, body, part;
  const ssize_t got = octavo_ring_receive(connection, bytes, sizeof bytes, descriptor);
  if (got <= 0) {
    octavo_ring_say(error, error_bytes, "the server ended the connection",
                    got < 0 ? strerror(errno) : "");
    errno = ECONNRESET;
    return -1;
  }
  message.length = (size_t)got;
  if (octavo_ring_field(message, OCTAVO_RING_REFUSED, &body) == 1) {
    char text[2400];
    int written = 0;
    text[0] = '\0';
    if (octavo_ring_field(body, OCTAVO_RING_REFUSED_REASON, &part) == 1)
      written = snprintf(text, 300, "%.*s: ", part.length < 256 ? (int)part.length : 256,
                         (const char*)part.bytes);
    const int wire = strncmp(text, "PROTOCOL", 8) == 0; /* PROTOCOL, PROTOCOL_VERSION */
    if (octavo_ring_field(body, OCTAVO_RING_REFUSED_MESSAGE, &part) == 1)
      snprintf(text + written, sizeof text - (size_t)written, "%.*s",
               part.length < 2048 ? (int)part.length : 2048, (const char*)part.bytes);
    octavo_ring_say(error, error_bytes, "refused", text);
    errno = wire ? EPROTO : EACCES;
    return -1;
  }
  if (octavo_ring_field(message, wanted, &body) == 1 &&
      (wanted != OCTAVO_RING_WELCOME ||
       (octavo_ring_field(body, OCTAVO_RING_WELCOME_VERSION, &part) == 1 &&
        part.value == OCTAVO_RING_WIRE_VERSION)))
    return 0;
  octavo_ring_say(error, error_bytes, "the server's answer is none that this program understands",
                  "");
  errno = EPROTO;
  return -1;
}

/* Says Hello and presents the ticket. The descriptor of the ring's memory, or -1 with errno and
 * `error`. */
static inline int octavo_ring_present(int connection, const char* ticket, char* error,
                                      size_t error_bytes) {
  unsigned char present[4 + 64]; /* ClientMessage.present, Present.ticket */
  const size_t length = strlen(ticket);
  int memory_fd = -1;
  present[0] = 0x22;
  present[1] = (unsigned char)(length + 2);
  present[2] = 0x0a;
  present[3] = (unsigned char)length;
  memcpy(present + 4, ticket, length);
  /* A server that has ended the connection may have said why, so only the answer counts. */
  (void)send(connection, octavo_ring_hello, sizeof octavo_ring_hello, MSG_NOSIGNAL);
  (void)send(connection, present, 4 + length, MSG_NOSIGNAL);
  if (octavo_ring_answer(connection, OCTAVO_RING_WELCOME, &memory_fd, error, error_bytes) != 0)
    return -1;
  if (memory_fd >= 0) close(memory_fd); /* none belongs there */
  if (octavo_ring_answer(connection, OCTAVO_RING_RING, &memory_fd, error, error_bytes) != 0) {
    const int why = errno;
    if (memory_fd >= 0) close(memory_fd);
    errno = why;
    return -1;
  }
  if (memory_fd < 0) {
    octavo_ring_say(error, error_bytes, "the server sent no descriptor of the ring", "");
    errno = EPROTO;
  }
  return memory_fd;
}

/* Presents the ticket and maps the ring. The connection stays open until octavo_ring_close: it
 * tells the server that the producer lives. 0, or -1 with errno and `error` (may be NULL): the
 * server's refusal as it said it. */
static inline int octavo_ring_open(octavo_ring* ring, const char* socket_path, const char* ticket,
                                   char* error, size_t error_bytes) {
  struct sockaddr_un address;
  int connection, memory_fd, result;

  memset(ring, 0, sizeof *ring);
  ring->socket_fd = -1;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  if (strlen(socket_path) >= sizeof address.sun_path || strlen(ticket) > 64 ||
      strspn(ticket, "0123456789abcdef") != strlen(ticket)) {
    octavo_ring_say(error, error_bytes, "the path is too long or the ticket is none", "");
    errno = EINVAL;
    return -1;
  }
  strcpy(address.sun_path, socket_path);
  connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0 ||
      connect(connection, (const struct sockaddr*)&address, sizeof address) != 0) {
    const int why = errno;
    octavo_ring_say(error, error_bytes, socket_path, strerror(why));
    if (connection >= 0) close(connection);
    errno = why;
    return -1;
  }
  memory_fd = octavo_ring_present(connection, ticket, error, error_bytes);
  result = memory_fd < 0 ? -1 : octavo_ring_map(ring, memory_fd, error, error_bytes);
  if (result != 0) {
    const int why = errno;
    if (memory_fd >= 0) close(memory_fd);
    close(connection);
    errno = why;
    return -1;
  }
  close(memory_fd);
  ring->socket_fd = connection;
  return 0;
}

/* The state of the scan: OCTAVO_RING_QUEUED (published blocks wait), RUNNING or CLOSED (it takes
 * no more records). Of a job RUNNING or CLOSED. */
static inline int octavo_ring_scan_state(const octavo_ring* ring) {
  return (int)__atomic_load_n(&octavo_ring_server_of(ring)->state, __ATOMIC_ACQUIRE);
}

/* 0, or the reason why the producer cannot write any more: EPIPE (the scan wants no more records,
 * the job no more frames), ECONNRESET (the server has gone), ESTALE (another producer has the
 * ring), EPROTO (the server cut this one off: octavo_ring_server_of(ring)->error says why), EINVAL
 * (the program published or dropped records in the ring of a job, or a frame in that of a scan). */
static inline int octavo_ring_trouble(const octavo_ring* ring) {
  const octavo_ring_server* server = octavo_ring_server_of(ring);
  char byte;
  if (ring->misuse != 0) return ring->misuse;
  if (__atomic_load_n(&server->error_code, __ATOMIC_ACQUIRE) != 0) return EPROTO;
  if (__atomic_load_n(&server->state, __ATOMIC_ACQUIRE) == OCTAVO_RING_CLOSED) return EPIPE;
  if (__atomic_load_n(&server->attachment, __ATOMIC_ACQUIRE) != ring->attachment) return ESTALE;
  if (ring->socket_fd >= 0 && recv(ring->socket_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
    return ECONNRESET;
  return 0;
}

/* Free slots now. */
static inline uint32_t octavo_ring_free(const octavo_ring* ring) {
  return ring->slots -
         (uint32_t)(ring->published -
                    __atomic_load_n(&octavo_ring_server_of(ring)->released, __ATOMIC_ACQUIRE));
}

/* The next slot to fill, block_records * record_bytes; waits for one at most timeout_ms (negative:
 * for as long as it takes). NULL with errno EAGAIN (the ring is full), or the error of
 * octavo_ring_trouble. Returns the same slot until it is published. */
static inline void* octavo_ring_begin(octavo_ring* ring, int timeout_ms) {
  octavo_ring_server* server = octavo_ring_server_of(ring);
  octavo_ring_producer* producer = octavo_ring_producer_of(ring);
  struct timespec now;
  int64_t until;
  clock_gettime(CLOCK_MONOTONIC, &now);
  until = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + timeout_ms;
  for (;;) {
    const uint32_t bell = __atomic_load_n(&server->bell, __ATOMIC_ACQUIRE);
    /* Checking the socket is a system call, so do it only before waiting. */
    if (__atomic_load_n(&server->state, __ATOMIC_ACQUIRE) == OCTAVO_RING_CLOSED ||
        __atomic_load_n(&server->attachment, __ATOMIC_ACQUIRE) != ring->attachment ||
        __atomic_load_n(&server->error_code, __ATOMIC_ACQUIRE) != 0 || ring->misuse != 0) {
      errno = octavo_ring_trouble(ring);
      return NULL;
    }
    if (octavo_ring_free(ring) > 0) {
      return ring->memory + ring->facts.data_offset +
             (ring->published % ring->slots) * ring->facts.slot_bytes;
    }
    int64_t left = 50; /* so that a server that has died is noticed */
    const int trouble = octavo_ring_trouble(ring);
    if (trouble != 0) {
      errno = trouble;
      return NULL;
    }
    if (timeout_ms >= 0) {
      clock_gettime(CLOCK_MONOTONIC, &now);
      const int64_t rest = until - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
      if (rest <= 0) {
        errno = EAGAIN;
        return NULL;
      }
      if (rest < left) left = rest;
    }
    struct timespec wait;
    wait.tv_sec = 0;
    wait.tv_nsec = (long)(left * 1000000);
    __atomic_store_n(&producer->waits, 1u, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&server->bell, __ATOMIC_SEQ_CST) == bell)
      (void)syscall(SYS_futex, &server->bell, FUTEX_WAIT, bell, &wait, NULL, 0);
    __atomic_store_n(&producer->waits, 0u, __ATOMIC_SEQ_CST);
  }
}

static inline void octavo_ring_ring_bell(octavo_ring* ring) {
  octavo_ring_producer* producer = octavo_ring_producer_of(ring);
  __atomic_add_fetch(&producer->bell, 1u, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&octavo_ring_server_of(ring)->waits, __ATOMIC_SEQ_CST) != 0) {
    (void)syscall(SYS_futex, &producer->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
}

/* 0, or -1 with errno EINVAL if the ring is none of this kind. It stays so: a program that does not
 * look at the result learns it from octavo_ring_begin. */
static inline int octavo_ring_is(octavo_ring* ring, uint32_t of_job) {
  if (ring->of_job == of_job) return 0;
  ring->misuse = EINVAL;
  errno = EINVAL;
  return -1;
}

/* The slot is filled, and its descriptor written. */
static inline void octavo_ring_publish_slot(octavo_ring* ring) {
  octavo_ring_producer* producer = octavo_ring_producer_of(ring);
  ++ring->published;
  __atomic_store_n(&producer->next_record, ring->next_record, __ATOMIC_RELAXED);
  __atomic_store_n(&producer->published, ring->published, __ATOMIC_SEQ_CST);
  octavo_ring_ring_bell(ring);
}

/* The first words of the descriptor of the slot that octavo_ring_begin gave. */
static inline octavo_ring_descriptor* octavo_ring_describe(octavo_ring* ring, uint64_t first,
                                                           uint32_t records, uint32_t flags,
                                                           int64_t time_ns) {
  octavo_ring_descriptor* of =
      (octavo_ring_descriptor*)(void*)(ring->memory + ring->facts.descriptor_offset) +
      ring->published % ring->slots;
  __atomic_store_n(&of->number, ring->published, __ATOMIC_RELAXED);
  __atomic_store_n(&of->first_record, first, __ATOMIC_RELAXED);
  __atomic_store_n(&of->records, records, __ATOMIC_RELAXED);
  __atomic_store_n(&of->flags, flags, __ATOMIC_RELAXED);
  __atomic_store_n(&of->time_ns, time_ns, __ATOMIC_RELAXED);
  return of;
}

/* The slot that octavo_ring_begin gave holds `records` records (1 ... block_records), numbered from
 * ring->next_record on, the last of which was there at `time_ns` of CLOCK_MONOTONIC (0 = now). 0,
 * or -1 with errno EINVAL: this is the ring of a job. */
static inline int octavo_ring_publish_at(octavo_ring* ring, uint32_t records, int64_t time_ns) {
  if (octavo_ring_is(ring, 0) != 0) return -1;
  (void)octavo_ring_describe(ring, ring->next_record, records, ring->pending_flags, time_ns);
  ring->pending_flags = 0;
  ring->next_record += records;
  octavo_ring_publish_slot(ring);
  return 0;
}
static inline int octavo_ring_publish(octavo_ring* ring, uint32_t records) {
  return octavo_ring_publish_at(ring, records, 0);
}

/* The slot that octavo_ring_begin gave holds frame `sequence` of the job's scan, counted from 0
 * over all kinds in the order of the scan; `kind` is one of octavo_ring_frame_kind, and `angle_rad`
 * the angle of a projection in radians, in any turn (0 for others). 0, or -1 with errno EINVAL, and
 * nothing is published: another kind, an angle that is not finite, or the ring of a scan. Frames
 * that the job has already, and numbers that it does not have, are counted and ignored. */
static inline int octavo_ring_publish_frame(octavo_ring* ring, uint64_t sequence, uint32_t kind,
                                            double angle_rad) __attribute__((warn_unused_result));
static inline int octavo_ring_publish_frame(octavo_ring* ring, uint64_t sequence, uint32_t kind,
                                            double angle_rad) {
  octavo_ring_descriptor* of;
  uint64_t bits;
  if (octavo_ring_is(ring, 1) != 0) return -1;
  if (kind < OCTAVO_RING_PROJECTION || kind > OCTAVO_RING_DARK ||
      !(angle_rad - angle_rad == 0)) { /* neither infinite nor NaN, without a library */
    errno = EINVAL;
    return -1;
  }
  memcpy(&bits, &angle_rad, sizeof bits);
  of = octavo_ring_describe(ring, sequence, 1, OCTAVO_RING_FRAME, 0);
  __atomic_store_n(&of->sequence, sequence, __ATOMIC_RELAXED);
  __atomic_store_n(&of->kind, kind, __ATOMIC_RELAXED);
  __atomic_store_n(&of->angle_bits, bits, __ATOMIC_RELAXED);
  ring->next_record = sequence + 1;
  octavo_ring_publish_slot(ring);
  return 0;
}

/* `records` records are lost because the ring was full: they count as an overrun, and the scan's
 * policy (ScanSpec.overrun) applies. Not for the ring of a job. */
static inline void octavo_ring_drop(octavo_ring* ring, uint64_t records) {
  octavo_ring_producer* producer = octavo_ring_producer_of(ring);
  if (records == 0 || octavo_ring_is(ring, 0) != 0) return;
  ring->next_record += records;
  if (ring->pending_flags == 0) __atomic_add_fetch(&producer->overruns, 1u, __ATOMIC_RELAXED);
  ring->pending_flags = OCTAVO_RING_OVERRUN;
  __atomic_add_fetch(&producer->overrun_records, records, __ATOMIC_RELAXED);
  __atomic_store_n(&producer->next_record, ring->next_record, __ATOMIC_RELEASE);
}

/* No more records will come: the scan ends when it has all published records. Of a job: this
 * producer sends no more frames, as `end` of PushProjections says it. */
static inline void octavo_ring_end(octavo_ring* ring) {
  __atomic_store_n(&octavo_ring_producer_of(ring)->next_record, ring->next_record,
                   __ATOMIC_RELAXED);
  __atomic_store_n(&octavo_ring_producer_of(ring)->state, (uint32_t)OCTAVO_RING_ENDED,
                   __ATOMIC_SEQ_CST);
  octavo_ring_ring_bell(ring);
}

/* The producer cannot continue: the scan or job ends FAILED (SOURCE_LOST) with `why`, when it has
 * all published records. */
static inline void octavo_ring_fail(octavo_ring* ring, const char* why) {
  octavo_ring_producer* producer = octavo_ring_producer_of(ring);
  strncpy(producer->error, why, sizeof producer->error - 1);
  __atomic_store_n(&producer->next_record, ring->next_record, __ATOMIC_RELAXED);
  __atomic_store_n(&producer->state, (uint32_t)OCTAVO_RING_FAILED, __ATOMIC_SEQ_CST);
  octavo_ring_ring_bell(ring);
}

/* Waits until the server has examined all published slots, at most timeout_ms. 0, or ETIMEDOUT, or
 * the error of octavo_ring_trouble (EPIPE is no failure then: the scan had all the records that it
 * wants). */
static inline int octavo_ring_flush(octavo_ring* ring, int timeout_ms) {
  int waited;
  for (waited = 0;; ++waited) {
    struct timespec pause;
    const int trouble = octavo_ring_trouble(ring);
    if (trouble != 0 || octavo_ring_free(ring) == ring->slots) return trouble;
    if (waited >= timeout_ms) return ETIMEDOUT;
    pause.tv_sec = 0;
    pause.tv_nsec = 1000000;
    nanosleep(&pause, NULL);
  }
}

/* Unmaps the ring and closes the connection. Published records count. */
static inline void octavo_ring_close(octavo_ring* ring) {
  if (ring->memory != NULL) munmap(ring->memory, (size_t)ring->facts.total_bytes);
  if (ring->socket_fd >= 0) close(ring->socket_fd);
  ring->memory = NULL;
  ring->socket_fd = -1;
}

#ifdef __cplusplus
} /* extern "C" */

#include <stdexcept>
#include <string>

namespace octavo {

/// The same for C++: closes itself, throws std::runtime_error if the ring cannot be opened.
class Ring {
 public:
  Ring(const std::string& socket_path, const std::string& ticket) {
    char error[512];
    if (octavo_ring_open(&ring_, socket_path.c_str(), ticket.c_str(), error, sizeof error) != 0)
      throw std::runtime_error(error);
  }
  ~Ring() { octavo_ring_close(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// A slot of block_records() records, or null: errno is EAGAIN (full), or why nothing more can be
  /// written (octavo_ring_trouble).
  template <class T = void>
  T* Begin(int timeout_ms = -1) {
    return static_cast<T*>(octavo_ring_begin(&ring_, timeout_ms));
  }
  /// Throws std::runtime_error if the ring is a job's.
  void Publish(uint32_t records, int64_t time_ns = 0) {
    if (octavo_ring_publish_at(&ring_, records, time_ns) != 0)
      throw std::runtime_error("this is the ring of a job: frames are published by PublishFrame");
  }
  /// As octavo_ring_publish_frame. Throws std::runtime_error if the ring is a scan's, or the kind
  /// or the angle cannot be.
  void PublishFrame(uint64_t sequence, octavo_ring_frame_kind kind, double angle_rad = 0) {
    if (octavo_ring_publish_frame(&ring_, sequence, kind, angle_rad) != 0)
      throw std::runtime_error(ring_.of_job == 0
                                   ? "this is the ring of a scan: records are published by Publish"
                                   : "kind is none of octavo_ring_frame_kind, or angle_rad is not "
                                     "finite");
  }
  void Drop(uint64_t records) { octavo_ring_drop(&ring_, records); }
  void End() { octavo_ring_end(&ring_); }
  void Fail(const std::string& why) { octavo_ring_fail(&ring_, why.c_str()); }
  int Flush(int timeout_ms) { return octavo_ring_flush(&ring_, timeout_ms); }

  uint32_t block_records() const { return ring_.block_records; }
  uint32_t record_bytes() const { return ring_.record_bytes; }
  uint32_t slots() const { return ring_.slots; }
  uint64_t total_records() const { return ring_.total_records; }
  bool of_job() const { return ring_.of_job != 0; }
  uint32_t rows() const { return ring_.rows; }
  uint32_t columns() const { return ring_.columns; }
  uint64_t next_record() const { return ring_.next_record; }
  void set_next_record(uint64_t record) { ring_.next_record = record; }
  octavo_ring* c() { return &ring_; }

 private:
  octavo_ring ring_;
};

}  // namespace octavo
#endif

#endif /* OCTAVO_RING_H_ */
