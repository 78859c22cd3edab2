#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "client/cpp/include/octavo/octavo_read.h"
#include "client/cpp/lib/connections.h"
#include "client/cpp/lib/volume_reader.h"

// Nothing may throw into a program in another language: each function catches all.

namespace octavo::client {
namespace {

constexpr std::chrono::seconds kShortCalls(30);
constexpr int kCancelled = 1, kUnknown = 2, kInvalidArgument = 3;

Given GivenAs(const char* value, const char* name) { return {value == nullptr ? "" : value, name}; }

Login LoginOf(const octavo_login* login) {
  if (login == nullptr) return {};
  return {.token_file = GivenAs(login->token_file, "token_file"),
          .ca_file = GivenAs(login->ca_file, "ca_file"),
          .cert_file = GivenAs(login->cert_file, "cert_file"),
          .key_file = GivenAs(login->key_file, "key_file"),
          .server_name = GivenAs(login->server_name, "server_name")};
}

}  // namespace
}  // namespace octavo::client

struct octavo_reader {
  explicit octavo_reader(const octavo::client::MakeConnection& connect)
      : reader(connect(), connect, octavo::client::kShortCalls) {}
  octavo::client::VolumeReader reader;
};

/// A read and its thread.
struct octavo_read {
 public:
  octavo_read(octavo::client::VolumeReader& reader, octavo::v1::ReadVolumeRequest request,
              uint32_t connections, std::span<std::byte> into)
      : thread_([this, &reader, request = std::move(request), connections,
                 into](const std::stop_token& stop) {
          End(Read(reader, request, connections, into, stop));
        }) {}
  int Wait(double seconds) {
    const std::chrono::duration<double> time(seconds > 0 ? std::min(seconds, 1e9) : 0);
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, time, [this] { return code_ != OCTAVO_READ_RUNS; });
    return code_;
  }
  void Cancel() { thread_.request_stop(); }

 private:
  static int Read(octavo::client::VolumeReader& reader,
                  const octavo::v1::ReadVolumeRequest& request, uint32_t connections,
                  std::span<std::byte> into, const std::stop_token& stop) {
    using octavo::client::kInvalidArgument;
    bool fits = true;
    const auto place = [&](const octavo::client::ArrayLayout& layout) {
      size_t bytes = octavo::client::Array::ItemSize(layout.dtype);
      for (const int64_t extent : layout.shape) {
        if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes))
          fits = false;
      }
      fits = fits && bytes == into.size();
      if (!fits)
        throw octavo::client::Error(octavo::client::Code::kInvalidArgument,
                                    "the box has other bytes");
      return into;
    };
    try {
      if (stop.stop_requested()) return octavo::client::kCancelled;
      reader.Read(request, connections, place, stop);
      return 0;
    } catch (const octavo::client::Error& error) {
      return fits ? static_cast<int>(error.code) : kInvalidArgument;
    } catch (...) {
      return octavo::client::kUnknown;
    }
  }
  void End(int code) {
    const std::lock_guard lock(mutex_);
    code_ = code;
    ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  int code_ = OCTAVO_READ_RUNS;  // guarded by mutex_
  std::jthread thread_;          // last: it uses the rest; its end stops it and waits for it
};

uint32_t octavo_read_version(void) { return OCTAVO_READ_VERSION; }

octavo_reader* octavo_reader_open(const char* address, const octavo_login* login) try {
  return new octavo_reader(octavo::client::ConnectionsTo(address, octavo::client::LoginOf(login)));
} catch (...) {
  return nullptr;
}

void octavo_reader_close(octavo_reader* reader) { delete reader; }

octavo_read* octavo_read_begin(octavo_reader* reader, const void* request, size_t request_bytes,
                               uint32_t connections, void* into, size_t into_bytes) try {
  octavo::v1::ReadVolumeRequest parsed;
  if (reader == nullptr || (request == nullptr && request_bytes > 0) ||
      (into == nullptr && into_bytes > 0) ||
      connections > octavo::client::VolumeReader::kMostConnections ||
      request_bytes > (size_t{1} << 20) ||
      !parsed.ParseFromArray(request, static_cast<int>(request_bytes)))
    return nullptr;
  return new octavo_read(reader->reader, std::move(parsed), connections,
                         {static_cast<std::byte*>(into), into_bytes});
} catch (...) {
  return nullptr;
}

int octavo_read_wait(octavo_read* read, double seconds) {
  return read == nullptr ? octavo::client::kInvalidArgument : read->Wait(seconds);
}

void octavo_read_cancel(octavo_read* read) {
  if (read != nullptr) read->Cancel();
}

void octavo_read_end(octavo_read* read) { delete read; }
