#pragma once

#include <cstddef>
#include <cstdint>

// Layout of the memory that the server shares with a producer on the same host;
// client/cpp/include/octavo/octavo_ring.h describes it to producers (a test compares the two).
// Numbers have the machine's own byte order, and each is read and written atomically. The server
// writes the pages RingFacts and RingServerPage and never reads them back; everything else is under
// the control of another process and may change at any time.
namespace octavo::source {

inline constexpr uint64_t kRingMagic = 0x474E49524F54434F;  // the bytes "OCTORING"
inline constexpr uint32_t kRingVersion = 1;
inline constexpr int64_t kRingPage = 4096;
inline constexpr size_t kRingText = 256;  // bytes of a text, including its terminating zero

/// Page 0: constants, written before the memory is handed over.
struct RingFacts {
  uint64_t magic;
  uint32_t version;
  uint32_t flags;        // kRingMayWait, kRingOfJob
  uint64_t total_bytes;  // of the memory
  uint64_t descriptor_offset;
  uint64_t data_offset;  // of slot 0
  uint64_t slot_bytes;   // block_records * record_bytes: the next slot begins there
  uint32_t slots;
  uint32_t block_records;  // most records of a slot
  uint32_t record_bytes;
  uint32_t samples_per_record;
  uint32_t raw_type;       // octavo.v1.RawType
  uint32_t channels;       // interleaved in a record
  uint64_t total_records;  // records that the scan wants; 0 = until stopped; of a job its frames
  uint32_t rows, columns;  // of a frame, with kRingOfJob; else 0
};
inline constexpr uint32_t kRingMayWait = 1;  // the scan was submitted with producer_waits
// The ring of a job: a slot takes one frame, which is its only record (kRingFrame).
inline constexpr uint32_t kRingOfJob = 2;

enum class RingState : uint32_t { kQueued = 0, kRunning = 1, kClosed = 2 };

/// Page 1: written by the server. `bell` moves with each change of released, state, attachment.
struct RingServerPage {
  uint64_t released;     // slots returned since the start
  uint32_t bell;         // futex
  uint32_t state;        // RingState
  uint32_t waits;        // the server waits for RingProducerPage.bell
  uint32_t error_code;   // google.rpc.Code: why the producer was disconnected; 0 = it was not
  uint64_t attachment;   // of the producer that may write
  uint64_t next_record;  // records before it were accepted or are given up; brought up to date as
                         // blocks are looked at
  uint64_t records, lost_records, duplicate_records, out_of_range_records, broken_blocks;
  uint64_t padding[22];
  char error[kRingText];
};

enum class RingProducerState : uint32_t { kFeeding = 0, kEnded = 1, kFailed = 2 };

/// Page 2: written by the producer.
struct RingProducerPage {
  uint64_t published;  // slots filled since the start; the server sets it when a producer attaches
  uint32_t bell;       // futex; changes with each update
  uint32_t state;      // RingProducerState
  uint32_t waits;      // the producer waits for RingServerPage.bell
  uint32_t reserved;
  // the record that it would write next, which reveals records dropped at the end
  uint64_t next_record;
  uint64_t overruns;  // times that it found the ring full and dropped records
  uint64_t overrun_records;
  uint64_t padding[26];
  char error[kRingText];  // the error of kFailed
};

/// One per slot, written by the producer before it publishes the slot.
struct RingDescriptor {
  uint64_t number;  // number of the block, from 0; written before the block is published
  uint64_t first_record;
  uint32_t records;
  uint32_t flags;   // kRingOverrun, kRingFrame
  int64_t time_ns;  // CLOCK_MONOTONIC at its last record; 0 = now
  // With kRingFrame. Programs that know nothing of frames leave these words as they are.
  uint64_t sequence;    // of the frame, in the scan of the job
  uint64_t kind;        // RingFrameKind
  uint64_t angle_bits;  // of a double, in radians; of a projection
  uint64_t reserved;
};
inline constexpr uint32_t kRingOverrun =
    1;  // records before the block were dropped because the ring was full
inline constexpr uint32_t kRingFrame = 2;  // the block is a frame

/// As octavo.v1.PushProjectionsRequest.Kind.
enum class RingFrameKind : uint64_t { kUnspecified = 0, kProjection = 1, kFlat = 2, kDark = 3 };

static_assert(sizeof(RingDescriptor) == 64);
static_assert(offsetof(RingServerPage, error) == 256 && offsetof(RingProducerPage, error) == 256);

inline constexpr int64_t kRingServerOffset = kRingPage, kRingProducerOffset = 2 * kRingPage,
                         kRingDescriptorOffset = 3 * kRingPage;

}  // namespace octavo::source
