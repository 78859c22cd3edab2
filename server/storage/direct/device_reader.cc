#include "server/storage/direct/device_reader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tbb/info.h"

#include "gpu/base/failpoint.h"
#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/io_memory.h"
#include "server/base/exception_to_status.h"
#include "server/storage/io/errno_status.h"

namespace octavo::storage {
namespace {

constexpr int64_t kSlabBytes = 8 << 20, kLeastSlabBytes = 256 << 10;
constexpr int64_t kMostSlabs = 32, kMostSlabMemory = 256 << 20;
constexpr int64_t kMostPieces = 2048;  // of a slab
/// Shorter reads go through the page cache: neither drive nor driver likes them better.
constexpr int64_t kLargeRead = 64 << 10;
constexpr int kLeastReaders = 8, kMostReaders = 12, kMostDecoders = 64;
constexpr int64_t kElementAlignment = 16;
constexpr std::chrono::milliseconds kTold(20);

/// The pieces of a read, opened file by file and handed out to the readers.
class PieceQueue {
 public:
  PieceQueue(const PieceSource& source, int64_t most_piece)
      : source_(source), most_piece_(most_piece) {}

  /// Takes the next piece if `fits`; opens the next file if none is left and `more` says so.
  /// Nothing: no piece fits, all are taken, or the work was stopped.
  template <class Fits>
  absl::StatusOr<std::optional<StoredPiece>> Take(bool open_more, const Fits& fits) {
    for (;;) {
      int64_t unit = 0;
      {
        MutexLock lock(mutex_);
        for (;;) {
          if (stopped_) return std::optional<StoredPiece>();
          if (!ready_.empty()) {
            if (!fits(ready_.front())) return std::optional<StoredPiece>();
            std::optional<StoredPiece> piece(std::move(ready_.front()));
            ready_.pop_front();
            return piece;
          }
          if (next_ < source_.units()) break;
          if (opening_ == 0 || !open_more) return std::optional<StoredPiece>();
          cv_.Wait(lock);  // for the pieces of a file that another reader opens
        }
        if (!open_more) return std::optional<StoredPiece>();
        unit = next_++;
        ++opening_;
      }
      std::vector<StoredPiece> pieces;
      const absl::Status opened = base::ExceptionToStatus([&] { return OpenUnit(unit, &pieces); });
      MutexLock lock(mutex_);
      --opening_;
      if (opened.ok())
        ready_.insert(ready_.end(), std::make_move_iterator(pieces.begin()),
                      std::make_move_iterator(pieces.end()));
      cv_.NotifyAll();
      OCTAVO_RETURN_IF_ERROR(opened);
    }
  }
  void Stop() {
    MutexLock lock(mutex_);
    stopped_ = true;
    cv_.NotifyAll();
  }

 private:
  absl::Status OpenUnit(int64_t unit, std::vector<StoredPiece>* out) const {
    std::vector<StoredPiece> whole;
    OCTAVO_RETURN_IF_ERROR(source_.Open(unit, &whole));
    for (StoredPiece& piece : whole) {
      if (piece.decoder != nullptr)
        out->push_back(std::move(piece));
      else
        CutPiece(piece, source_.element_bytes(), most_piece_, out);
    }
    return absl::OkStatus();
  }

  const PieceSource& source_;
  const int64_t most_piece_;
  Mutex mutex_;
  CondVar cv_;
  std::deque<StoredPiece> ready_ ABSL_GUARDED_BY(mutex_);
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  int opening_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Host memory at a multiple of a page, reused.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  /// Throws std::bad_alloc.
  char* Get(int64_t bytes) {
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ = static_cast<char*>(std::aligned_alloc(
          kDirectAlignment, static_cast<size_t>(RoundUp(bytes, kDirectAlignment))));
      if (data_ == nullptr) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct Slab {
  std::shared_ptr<void> memory;
  char* host = nullptr;
  char* device = nullptr;  // the same as `host` where the device reads host memory
  Event passed;
  StreamRef stream;
};

/// A piece and its place in a slab.
struct Placed {
  StoredPiece piece;
  int64_t at = 0;
};

/// The slabs of a read.
struct SlabPlan {
  int64_t bytes = 0, count = 0;
  int threads = 1;
};
SlabPlan PlanSlabs(const PieceSource& source, int64_t elements, int threads) {
  SlabPlan plan;
  const int64_t decoded = source.most_decoded_bytes(), all = elements * source.element_bytes();
  // A decoded piece lies in one slab. Small volumes take small slabs.
  plan.bytes = decoded > kSlabBytes / 2
                   ? RoundUp(decoded + (1 << 20), 1 << 20)
                   : std::clamp(RoundUp(2 * std::max(all, 2 * decoded), kLeastSlabBytes),
                                kLeastSlabBytes, kSlabBytes);
  // Readers wait for the drive; decoders keep the cores busy, with two more that wait.
  const int cores = tbb::info::default_concurrency();
  plan.threads = threads > 0   ? threads
                 : decoded > 0 ? std::clamp(cores + 2, 4, kMostDecoders)
                               : std::clamp(cores, kLeastReaders, kMostReaders);
  plan.count = std::max<int64_t>(
      2, std::min({2 * int64_t{plan.threads}, kMostSlabs, kMostSlabMemory / plan.bytes,
                   (all + plan.bytes - 1) / plan.bytes + 2}));
  return plan;
}

/// Readers that so many slabs keep busy: a quarter of the slabs is on its way to the device.
int64_t ReadersOf(int64_t slabs) { return slabs - (slabs + 3) / 4; }

/// The bytes of a slab where all slabs together may have `most`: smaller than planned if otherwise
/// readers had to wait for each other. Large reads want no smaller ones than 2 MiB, and a decoded
/// piece lies in one slab.
int64_t SlabBytesWithin(const SlabPlan& plan, const PieceSource& source, int64_t most) {
  constexpr int64_t kLeastOfReads = 2 << 20;
  const int64_t decoded = source.most_decoded_bytes(),
                least = decoded > 0 ? std::max(kLeastSlabBytes, 2 * decoded) : kLeastOfReads;
  int64_t bytes = plan.bytes;
  while (bytes / 2 >= least && ReadersOf(std::min(plan.count, most / bytes)) < plan.threads &&
         most / bytes < plan.count)
    bytes /= 2;
  return bytes;
}

class Reader final : public DeviceReader {
 public:
  explicit Reader(const DeviceRead& read) : read_(read) {}

  absl::Status Prepare() {
    OCTAVO_ASSIGN_OR_RETURN(scatter_, FindOperators<ScatterOps>(*read_.device));
    spec_ = read_.spec;
    spec_.swap_bytes = read_.source->big_endian();  // the host is little-endian
    OCTAVO_RETURN_IF_ERROR(PrepareScatter(spec_, {}).status());
    const SlabPlan plan = PlanSlabs(*read_.source, read_.elements, read_.threads);
    const int64_t bytes =
        read_.most_lent > 0 ? SlabBytesWithin(plan, *read_.source, read_.most_lent) : plan.bytes;
    threads_ = plan.threads;
    for (int64_t i = 0; i < plan.count; ++i) {
      auto memory = read_.lend(bytes);
      if (!memory.ok() && i < 2) return memory.status();
      if (!memory.ok()) break;
      Slab& slab = slabs_.emplace_back();
      slab.memory = *std::move(memory);
      slab.host = slab.device = static_cast<char*>(slab.memory.get());
    }
    slab_bytes_ = bytes;
    const auto count = std::ssize(slabs_);
    threads_ = static_cast<int>(std::clamp<int64_t>(ReadersOf(count), 1, threads_));
    for (Stream& stream : streams_) {
      OCTAVO_ASSIGN_OR_RETURN(stream, read_.device->NewStream(StreamPriority::kNormal));
    }
    OCTAVO_ASSIGN_OR_RETURN(begun_, read_.device->NewEvent());
    OCTAVO_RETURN_IF_ERROR(PrepareStaging());
    for (size_t i = 0; i < slabs_.size(); ++i) {
      OCTAVO_ASSIGN_OR_RETURN(slabs_[i].passed, read_.device->NewEvent());
      slabs_[i].stream = streams_[i % 2].ref();
      free_.push_back(&slabs_[i]);
    }
    return absl::OkStatus();
  }

  ~Reader() override {
    if (registered_ != nullptr) {
      (void)MakeCurrent(*read_.device);
      read_.cufile->DeregisterBuffer(registered_);
    }
  }

  absl::Status Run(StreamRef before,
                   const std::function<absl::Status(double)>& on_progress) override {
    // Small enough that several fit into a slab.
    PieceQueue queue(*read_.source,
                     std::max<int64_t>(slab_bytes_ / 4 - 4 * kDirectAlignment, kDirectAlignment));
    queue_ = &queue;
    OCTAVO_RETURN_IF_ERROR(begun_.Record(before));
    for (const Stream& stream : streams_) OCTAVO_RETURN_IF_ERROR(begun_.EnqueueWait(stream.ref()));
    absl::Status passed;
    {
      // The slabs and the array may be freed only when the device has passed them, also after an
      // exception: threads first, then the streams.
      const absl::Cleanup drain = [&] {
        for (const Stream& stream : streams_) passed.Update(stream.ref().Synchronize());
      };
      std::vector<std::jthread> threads;
      const absl::Cleanup stop = [&] {
        Stop(absl::OkStatus());
        threads.clear();
      };
      const absl::Status started = base::ExceptionToStatus([&] {
        threads.reserve(static_cast<size_t>(threads_));
        for (int i = 0; i < threads_; ++i) {
          {
            MutexLock lock(mutex_);
            ++running_;
          }
          try {
            threads.emplace_back([this] { Work(); });
          } catch (...) {
            Ended();
            throw;
          }
        }
        return absl::OkStatus();
      });
      // With fewer threads than wanted it goes on.
      if (threads.empty()) return started;
      const absl::Status told = Follow(on_progress);
      if (!told.ok()) Stop(told);
    }
    MutexLock lock(mutex_);
    OCTAVO_RETURN_IF_ERROR(error_);
    OCTAVO_RETURN_IF_ERROR(passed);
    if (done_ == read_.elements) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the pieces of the box have ", done_.load(), " of its ",
                                            read_.elements, " elements"));
  }

  int64_t cufile_bytes() const override { return cufile_bytes_; }
  int64_t host_bytes() const override { return host_bytes_; }

 private:
  absl::Status PrepareStaging() {
    const bool by_cufile =
        read_.way != nullptr && read_.cufile != nullptr && read_.way->now() == ReadWay::kCufile;
    const int64_t all = slab_bytes_ * std::ssize(slabs_);
    if (!scatter_->ReadsHostMemory()) {
      if (by_cufile) {
        OCTAVO_ASSIGN_OR_RETURN(staging_, AllocateForIo(*read_.device, all + kDirectAlignment));
      } else {
        OCTAVO_ASSIGN_OR_RETURN(staging_, read_.device->Allocate(all + kDirectAlignment));
      }
      const auto address = reinterpret_cast<uintptr_t>(staging_.data());
      char* const first =
          staging_.as<char>() + (kDirectAlignment - address % kDirectAlignment) % kDirectAlignment;
      for (int64_t i = 0; i < std::ssize(slabs_); ++i)
        slabs_[static_cast<size_t>(i)].device = first + i * slab_bytes_;
      if (by_cufile && MakeCurrent(*read_.device).ok() &&
          read_.cufile->RegisterBuffer(first, all).ok())
        registered_ = first;
    }
    return absl::OkStatus();
  }

  absl::Status Follow(const std::function<absl::Status(double)>& on_progress) {
    for (;;) {
      const double part = static_cast<double>(done_) / static_cast<double>(read_.elements);
      OCTAVO_RETURN_IF_ERROR(on_progress(std::min(part, 1.0)));
      MutexLock lock(mutex_);
      if (running_ == 0) return absl::OkStatus();
      (void)ended_.WaitFor(lock, kTold);
    }
  }

  /// Ends the work with the first error.
  void Stop(const absl::Status& error) {
    {
      MutexLock lock(mutex_);
      error_.Update(error);
      stopped_ = true;
      slab_free_.NotifyAll();
    }
    queue_->Stop();
  }
  bool stopped() {
    MutexLock lock(mutex_);
    return stopped_;
  }
  void Ended() {
    MutexLock lock(mutex_);
    --running_;
    ended_.NotifyAll();
  }

  void Work() noexcept {
    const absl::Status status = base::ExceptionToStatus([&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(MakeCurrent(*read_.device));
      Scratch scratch;
      for (;;) {
        Slab* const slab = TakeSlab();
        if (slab == nullptr) return absl::OkStatus();
        const absl::Cleanup back = [&] { ReturnSlab(slab); };
        OCTAVO_RETURN_IF_ERROR(slab->passed.Synchronize());
        OCTAVO_ASSIGN_OR_RETURN(const std::vector<Placed> batch, TakeBatch());
        if (batch.empty()) return absl::OkStatus();
        OCTAVO_RETURN_IF_ERROR(FillSlab(batch, slab, &scratch));
      }
    });
    if (!status.ok()) Stop(status);
    Ended();
  }

  Slab* TakeSlab() {
    MutexLock lock(mutex_);
    while (free_.empty() && !stopped_) slab_free_.Wait(lock);
    if (stopped_) return nullptr;
    Slab* const slab = free_.front();  // the one that was sent first
    free_.pop_front();
    return slab;
  }
  void ReturnSlab(Slab* slab) {
    MutexLock lock(mutex_);
    free_.push_back(slab);
    slab_free_.NotifyOne();
  }

  int64_t ElementsOf(const StoredPiece& piece) const {
    int64_t elements = 1;
    for (const int64_t count : piece.count) elements *= count;
    return elements;
  }
  /// Bytes of the piece in a slab.
  int64_t BytesOf(const StoredPiece& piece) const {
    return piece.decoder != nullptr ? ElementsOf(piece) * read_.source->element_bytes()
           : piece.file != nullptr  ? piece.bytes
                                    : read_.source->element_bytes();
  }
  static bool IsLarge(const StoredPiece& piece) {
    return piece.file != nullptr && piece.decoder == nullptr && piece.bytes >= kLargeRead;
  }
  /// Where a piece begins behind `cursor`: large reads keep their remainder by a page.
  static int64_t PlaceOf(const StoredPiece& piece, int64_t cursor) {
    const int64_t step = IsLarge(piece) ? kDirectAlignment : kElementAlignment;
    const bool plain = piece.file != nullptr && piece.decoder == nullptr;
    return RoundUp(cursor, step) + (plain ? piece.offset % step : 0);
  }
  int64_t EndOf(const StoredPiece& piece, int64_t at) const {
    return RoundUp(at + BytesOf(piece), IsLarge(piece) ? kDirectAlignment : kElementAlignment);
  }

  /// As many pieces as fit. Empty: none is left.
  absl::StatusOr<std::vector<Placed>> TakeBatch() {
    std::vector<Placed> batch;
    int64_t cursor = 0;
    for (;;) {
      const auto fits = [&](const StoredPiece& piece) {
        const int64_t table =
            (std::ssize(batch) + 1) * int64_t{sizeof(ScatterPiece)} + kMemoryAlignment;
        return EndOf(piece, PlaceOf(piece, cursor)) + table <= slab_bytes_;
      };
      const bool more = batch.empty() || cursor < slab_bytes_ / 2;
      OCTAVO_ASSIGN_OR_RETURN(std::optional<StoredPiece> piece, queue_->Take(more, fits));
      if (!piece.has_value()) return batch;
      const int64_t at = PlaceOf(*piece, cursor);
      cursor = EndOf(*piece, at);
      batch.push_back({.piece = *std::move(piece), .at = at});
      if (std::ssize(batch) == kMostPieces) return batch;
    }
  }

  /// Reads and decodes a batch, and enqueues its way to the array.
  absl::Status FillSlab(const std::vector<Placed>& batch, Slab* slab, Scratch* scratch) {
    if (const int error = Failpoint("direct_read"))
      return ErrnoStatus(error, "reading", "a piece of the volume");
    if (HostWay() == ReadWay::kBuffered) {
      for (size_t i = 1; i < batch.size(); ++i) {
        const StoredPiece& piece = batch[i].piece;
        // What cuFile is to read must not come to the page cache: it would be read from there.
        if (piece.file != nullptr && piece.bytes >= kLargeRead && !IsForCuFile(piece) &&
            !IsCached(piece))
          piece.file->WillNeed(piece.offset, piece.bytes);
      }
    }
    std::vector<std::pair<int64_t, int64_t>> ranges;  // of host memory, to be copied
    std::vector<ScatterPiece> pieces;
    pieces.reserve(batch.size());
    bool apart = false;  // the device has what lies behind the last range
    const auto filled = [&](int64_t begin, int64_t end) {
      if (ranges.empty() || std::exchange(apart, false))
        ranges.emplace_back(begin, end);
      else
        ranges.back().second = end;
    };
    int64_t cursor = 0, elements = 0;
    for (const Placed& placed : batch) {
      if (stopped()) return absl::OkStatus();
      const StoredPiece& piece = placed.piece;
      const int64_t end = placed.at + BytesOf(piece);
      int64_t by_cufile = 0;  // bytes at the beginning of the piece
      const absl::Status got = Fetch(placed, slab, scratch, &by_cufile);
      if (!got.ok()) return read_.source->Told(got);
      if (by_cufile > 0) apart = true;
      if (placed.at + by_cufile < end) filled(placed.at + by_cufile, end);
      pieces.push_back(PlacedPiece(placed));
      cursor = EndOf(piece, placed.at);
      elements += ElementsOf(piece);
    }
    OCTAVO_ASSIGN_OR_RETURN(const int64_t blocks, PrepareScatter(spec_, absl::MakeSpan(pieces)));
    const int64_t table = AlignedBytes(cursor),
                  table_bytes = std::ssize(pieces) * int64_t{sizeof(ScatterPiece)};
    std::memcpy(slab->host + table, pieces.data(), static_cast<size_t>(table_bytes));
    filled(table, table + table_bytes);
    const absl::Status sent = [&]() -> absl::Status {
      if (slab->device != slab->host) {
        for (const auto& [begin, end] : ranges)
          OCTAVO_RETURN_IF_ERROR(read_.device->CopyToDevice(slab->stream, slab->device + begin,
                                                            slab->host + begin, end - begin));
      }
      return scatter_->Scatter(slab->stream, spec_, slab->device,
                               reinterpret_cast<const ScatterPiece*>(slab->device + table),
                               std::ssize(pieces), blocks, read_.out);
    }();
    // In any case: copies may be under way.
    OCTAVO_RETURN_IF_ERROR(slab->passed.Record(slab->stream));
    OCTAVO_RETURN_IF_ERROR(sent);
    done_ += elements;
    return absl::OkStatus();
  }

  /// Whether cuFile reads the piece, unless the page cache has it.
  bool IsForCuFile(const StoredPiece& piece) const {
    return IsLarge(piece) && read_.way != nullptr && read_.cufile != nullptr &&
           read_.way->now() == ReadWay::kCufile;
  }
  bool IsCached(const StoredPiece& piece) const {
    return read_.use_cached && piece.file->IsCached(piece.offset, piece.bytes);
  }

  ReadWay HostWay() const {
    return read_.way != nullptr && read_.way->by_host() == ReadWay::kDirect ? ReadWay::kDirect
                                                                            : ReadWay::kBuffered;
  }

  /// Brings the elements of a piece to its place in the slab: the first `by_cufile` bytes to the
  /// device's part, the others to the host's.
  absl::Status Fetch(const Placed& placed, Slab* slab, Scratch* scratch, int64_t* by_cufile) {
    const StoredPiece& piece = placed.piece;
    char* const to = slab->host + placed.at;
    if (piece.file == nullptr) {
      std::memcpy(to, piece.fill.data(), piece.fill.size());
      return absl::OkStatus();
    }
    if (piece.decoder != nullptr) {
      const int64_t begin = piece.offset % kDirectAlignment;
      char* const encoded = scratch->Get(begin + piece.bytes + kDirectAlignment) + begin;
      OCTAVO_RETURN_IF_ERROR(ReadByHost(piece, encoded));
      return piece.decoder->Decode({encoded, static_cast<size_t>(piece.bytes)}, to);
    }
    if (IsForCuFile(piece) && !IsCached(piece)) {
      const auto read = ReadByCuFile(placed, slab);
      if (read.ok()) {
        *by_cufile = *read;
        cufile_bytes_ += *read;
        if (*read == piece.bytes) return absl::OkStatus();
        host_bytes_ += piece.bytes - *read;
        return piece.file->ReadBuffered(piece.offset + *read, piece.bytes - *read, to + *read);
      }
      read_.way->CuFileFailed(read.status().message());
    }
    return ReadByHost(piece, to);
  }

  absl::Status ReadByHost(const StoredPiece& piece, char* to) {
    host_bytes_ += piece.bytes;
    if (HostWay() == ReadWay::kDirect && piece.bytes >= kLargeRead && !IsCached(piece))
      return piece.file->ReadDirect(piece.offset, piece.bytes, to);
    return piece.file->ReadBuffered(piece.offset, piece.bytes, to);
  }

  /// The bytes up to the last multiple of a page, which may be less than the piece. Nothing of the
  /// memory is certain after an error.
  absl::StatusOr<int64_t> ReadByCuFile(const Placed& placed, Slab* slab) {
    const StoredPiece& piece = placed.piece;
    OCTAVO_ASSIGN_OR_RETURN(const cufile::Handle handle, piece.file->CuFileHandle(*read_.cufile));
    const int64_t slack = piece.offset % kDirectAlignment, begin = piece.offset - slack,
                  end = (piece.offset + piece.bytes) / kDirectAlignment * kDirectAlignment;
    char* const base = registered_ != nullptr ? registered_ : slab->device;
    const int64_t base_offset = slab->device + placed.at - slack - base;
    for (int64_t at = begin; at < end;) {
      OCTAVO_ASSIGN_OR_RETURN(
          const int64_t read,
          read_.cufile->Read(handle, base, base_offset + (at - begin), end - at, at));
      // Goes on at a multiple again.
      const int64_t whole = read / kDirectAlignment * kDirectAlignment;
      if (whole <= 0 || whole > end - at)
        return absl::UnavailableError("cuFileRead stops before the end of the range");
      at += whole;
    }
    return end - piece.offset;
  }

  ScatterPiece PlacedPiece(const Placed& placed) const {
    const StoredPiece& piece = placed.piece;
    const int64_t element = read_.source->element_bytes();
    Extents packed(piece.count.size(), element);
    for (size_t d = packed.size(); d-- > 1;) packed[d - 1] = packed[d] * piece.count[d];
    ScatterPiece out;
    out.from = placed.at;
    for (int i = 0; i < 3; ++i) {
      if (read_.box_axis[i] < 0) continue;
      const auto d = static_cast<size_t>(read_.box_axis[i]);
      out.count[i] = piece.count[d];
      out.from_stride[i] = piece.decoder != nullptr ? packed[d]
                           : piece.file != nullptr  ? piece.stride[d]
                                                    : 0;
      out.to_stride[i] = read_.out_stride[i];
      out.to += piece.to[d] * read_.out_stride[i];
    }
    return out;
  }

  const DeviceRead& read_;
  ScatterOps* scatter_ = nullptr;
  ScatterSpec spec_;
  int threads_ = 1;
  int64_t slab_bytes_ = 0;
  DeviceBuffer staging_;
  char* registered_ = nullptr;  // the beginning of what cuFile knows
  std::deque<Slab> slabs_;
  Stream streams_[2];  // after what they use
  Event begun_;
  PieceQueue* queue_ = nullptr;
  std::atomic<int64_t> done_{0}, cufile_bytes_{0}, host_bytes_{0};
  Mutex mutex_;
  CondVar slab_free_, ended_;
  std::deque<Slab*> free_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<int64_t> DeviceReader::DeviceBytes(Device& device, const PieceSource& source,
                                                  int64_t elements) {
  OCTAVO_ASSIGN_OR_RETURN(const ScatterOps* const scatter, FindOperators<ScatterOps>(device));
  if (scatter->ReadsHostMemory()) return 0;
  const SlabPlan plan = PlanSlabs(source, elements, 0);
  return plan.bytes * plan.count + kDirectAlignment;
}

absl::StatusOr<std::unique_ptr<DeviceReader>> DeviceReader::Create(const DeviceRead& read) {
  auto reader = std::make_unique<Reader>(read);
  OCTAVO_RETURN_IF_ERROR(reader->Prepare());
  return std::unique_ptr<DeviceReader>(std::move(reader));
}

}  // namespace octavo::storage
