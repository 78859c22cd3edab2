/* Voxels straight into the caller's memory, for programs in other languages than C++: over several
 * connections at once, by threads of this library, so that a language whose threads take turns
 * (Python) does not hold up the bytes. The client for Python uses it where it finds it. C11 and
 * C++11. Licence: Apache-2.0.
 *
 *   octavo_reader* reader = octavo_reader_open("127.0.0.1:50051", NULL);
 *   octavo_read* read = octavo_read_begin(reader, request, request_bytes, 0, into, into_bytes);
 *   int code;
 *   while ((code = octavo_read_wait(read, 0.1)) == OCTAVO_READ_RUNS) {
 *     // octavo_read_cancel(read) if the user wants no more
 *   }
 *   octavo_read_end(read);
 *   octavo_reader_close(reader);
 *
 * Functions may be called from any thread. A read belongs to its reader, which is closed last. A
 * process that was forked must not use what its parent has opened. The first reader of a process
 * sets GRPC_EXPERIMENTS in its environment (faster reads) unless it is set. A process takes one
 * such library: two copies would register the same messages with protobuf, which ends the process.
 */
#ifndef OCTAVO_READ_H_
#define OCTAVO_READ_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCTAVO_READ_VERSION 1
#define OCTAVO_READ_RUNS (-1)

typedef struct octavo_reader octavo_reader;
typedef struct octavo_read octavo_read;

/* Files to log in with, as of octavo::TlsFiles and Client; NULL or "": none. The environment is not
 * looked at. */
typedef struct octavo_login {
  const char *token_file, *ca_file, *cert_file, *key_file, *server_name;
} octavo_login;

/* OCTAVO_READ_VERSION of the library. A caller uses only a library of its own version. */
uint32_t octavo_read_version(void);

/* `address`: host:port or unix:/path. `login`: may be NULL. Connects with the first read. NULL: a
 * file cannot be used, or there is no memory. */
octavo_reader* octavo_reader_open(const char* address, const octavo_login* login);
/* After the end of its reads. NULL: does nothing. */
void octavo_reader_close(octavo_reader* reader);

/* Begins to read a box of a volume. `request`: a serialised octavo.v1.ReadVolumeRequest.
 * `connections`: at most so many at once, 1 ... 16; 0: as the processors and the box allow. `into`:
 * for the voxels in C order, exactly `into_bytes`, until octavo_read_end returns. NULL: the request
 * cannot be parsed, or there is no memory or thread. */
octavo_read* octavo_read_begin(octavo_reader* reader, const void* request, size_t request_bytes,
                               uint32_t connections, void* into, size_t into_bytes);
/* Waits for the end of the read, at most so many seconds (0 and less, NaN: not at all).
 * OCTAVO_READ_RUNS: it has not ended. 0: all voxels are there. Else the code of gRPC: `into` holds
 * a part of them, or nothing. 3 (INVALID_ARGUMENT): the box has not `into_bytes`. */
int octavo_read_wait(octavo_read* read, double seconds);
/* The read ends soon, with code 1 (CANCELLED) unless it has ended. */
void octavo_read_cancel(octavo_read* read);
/* Cancels the read if it runs, waits for its end, and frees it. NULL: does nothing. */
void octavo_read_end(octavo_read* read);

#ifdef __cplusplus
}
#endif

#endif
