#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/array/array_ops.h"
#include "gpu/array/array_program.h"
#include "gpu/base/clock.h"
#include "gpu/base/reason.h"
#include "server/security/owner.h"
#include "server/security/principal.h"

// Requests and states of buffers in plain types. Fields as in octavo.v1.
namespace octavo::model {

enum class BufferState : uint8_t {
  kReady = 1,
  kWriting = 2,
  kPartial = 3,
  kLost = 4,
  kUninitialized = 5
};
const char* Name(BufferState state);  // "READY"

/// The caller.
struct Caller {
  std::string client;  // the client's own name for itself; empty = anonymous
  std::string key;     // opens its private buffers
  security::Principal principal;
  std::string trace_id;  // of the trace that the call belongs to; empty = none
};

struct BufferSpec {
  Scalar scalar{};
  uint64_t lanes = 0;  // 0 = 1
  std::vector<uint64_t> shape;
  std::vector<uint32_t> devices;  // n of devices/<n>; empty = all
  bool uninitialized = false;
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  bool is_private = false;
  std::string request_id, request_digest;
};

/// How the server maps memory that a client lends. As octavo.v1.ImportKind.
enum class ImportKind : uint8_t { kDefault = 0, kHostMemfd = 1, kCudaVmm = 2 };
const char* Name(ImportKind kind);  // "HOST_MEMFD"

/// All fields as in octavo.v1.ImportBufferRequest.
struct BufferImportSpec {
  BufferSpec array;  // of it: `devices` has one
  ImportKind kind = ImportKind::kDefault;
  uint64_t byte_size = 0;
  std::string session_secret;
};

/// The memory behind an imported buffer.
struct ImportedMemory {
  ImportKind kind = ImportKind::kHostMemfd;
  int64_t mapped_bytes = 0;
  std::string session;  // empty = ends with the connection alone
  int64_t uid = 0, pid = 0;
};

struct ReplicaStatus {
  uint32_t index = 0;
  int device = 0;
  std::string device_uuid;
  uint64_t version = 0;
  int64_t bytes = 0;
  BufferState state = BufferState::kUninitialized;
};

struct BufferStatus {
  std::string name;
  uint64_t number = 0;  // in the order they were made
  ArrayType type;
  std::vector<ReplicaStatus> replicas;
  bool coherent = false;
  BufferState state = BufferState::kUninitialized;
  std::string origin;
  std::string client;  // as Caller.client of its maker
  security::Owner owner;
  bool is_private = false;
  std::map<std::string, std::string> labels;
  TimePoint created;
  double expires_seconds = 0;
  int64_t expires_unix_ns = 0;  // the same moment; 0 = never
  int64_t shared_leases = 0, exclusive_leases = 0, charged_bytes = 0;
  uint64_t revision = 0;  // counts its changes; `etag` is its text
  std::string etag;
  uint64_t sequence = 0;
  Reason gone = Reason::kNone;             // in the last news of it: what became of it
  std::optional<ImportedMemory> imported;  // a client lends the memory
};

struct BufferWriteSpec {
  std::string name;
  bool all = true;
  uint32_t replica = 0;
  uint64_t byte_offset = 0, total_bytes = 0;
  bool has_type = false;
  Scalar scalar{};
  uint64_t lanes = 0;
  std::vector<uint64_t> shape;  // empty = unchecked
  bool has_crc = false;
  uint32_t crc32c = 0;
  std::string lease_token;
  uint64_t lease_fence = 0, if_version = 0;
};

/// All fields as in octavo.v1.ExportRequest.
struct ExportSpec {
  std::string name;
  uint32_t replica = 0;
  std::string lease_token;
  uint64_t lease_fence = 0;
};

struct BufferReadSpec {
  enum class Which : uint8_t { kAny, kReplica, kStacked };
  std::string name;
  Which which = Which::kAny;
  uint32_t replica = 0;
  std::vector<int64_t> start, count;  // of a box; as base::ResolveBox takes them
  uint64_t if_version = 0;
  bool allow_uninitialized = false, allow_incoherent = false;
  std::string lease_token;
  uint64_t lease_fence = 0;
  /// The server reads for itself: piece by piece, as slowly as it needs to (no SLOW_READER).
  bool by_server = false;
};

struct BufferApplySpec {
  std::string input;
  std::vector<Op> operations;
  std::vector<std::string> others;  // of CombineOp, by its index
  std::string output;               // empty = a new one
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  std::string request_id, request_digest;
  std::string input_lease_token, output_lease_token;
};

/// A program that reads arrays and makes one: what ApplyOp does with a chain, and other calls with
/// what they plan.
struct BufferProgramSpec {
  struct Input {
    std::string name;         // buffers/... or volumes/...
    std::string lease_token;  // of the caller's lease; empty = none
  };
  std::vector<Input> inputs;
  ArrayPlanner plan;
  std::string called;  // the call, for holders of leases
  std::string output;  // empty = a new one
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  std::string request_id, request_digest;
  std::string output_lease_token;
};

}  // namespace octavo::model
