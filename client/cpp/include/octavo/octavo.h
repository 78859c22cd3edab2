#pragma once

// liboctavo: Octavo from C++. Its header needs only the standard library.
//
//   octavo::client::Client client("127.0.0.1:50051");
//   auto scan = client.SubmitScan(
//       {.source = Simulated{.seed = 1},
//        .pattern = {.ascans_per_bscan = 512, .bscans_per_volume = 256, .volumes = 4}});
//   for (const Frame& frame : client.Subscribe({.parent = scan.name})) Show(frame);  // to its end
//   Volume volume = client.ListVolumes(scan.name).front();
//   Array voxels = client.Read(volume.name);  // [y, x, z]
//   Mapped mapped = client.Map(volume.name);  // without a copy, on the same host
//   client.Commit(volume.name, {.destination = "mouse_{index:05}"});
//
// Arrays are C order, [y (B-scan), x (A-scan), z (depth)]; lengths are micrometres. A call that
// fails throws Error. One Client may be used from many threads; a FrameStream is read by one
// thread, and Cancel may come from any.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace octavo::client {

class Handoff;  // ownership of the memory; for the library

/// gRPC's status codes.
enum class Code {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16
};

/// A call failed; what() is the server's message.
class Error : public std::runtime_error {
 public:
  Error(Code of, const std::string& message) : std::runtime_error(message), code(of) {}
  Code code;
  std::string reason;  // stable, UPPER_SNAKE_CASE: DEVICE_FULL, BAD_FIELD, VOLUME_STATE, ...
  std::string field;   // the request field at fault, dotted; empty if none
  std::map<std::string, std::string> numbers;  // values named in the message
};

// Values as in octavo.v1, whose comments say more; kDefault: the server chooses, as the field's
// comment in the proto says.

/// Type of an array's elements. Volumes and frames have kU8 to kC64.
enum class DType {
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kF16 = 5,  // IEEE binary16
  kF32 = 6,
  kF64 = 7,
  kC64 = 8,  // two f32: real, imaginary
  kU32 = 9,
  kI32 = 10,
  kU64 = 11,
  kI64 = 12,
  kC32 = 13,  // two f16
  kC128 = 14  // two f64
};
/// Type of the samples that a source delivers.
enum class RawType {
  kDefault = 0,
  kU8 = 1,
  kU16 = 2,
  kI16 = 3,
  kF32 = 4,
  kU12p = 5,      // 12 bits packed as GenICam's Mono12p: low bits first
  kU12Packed = 6  // 12 bits packed as GigE Vision's Mono12Packed
};
/// What a voxel says of the complex depth sample z.
enum class Value {
  kDefault = 0,    // kDb
  kDb = 1,         // 20 log10 |z|
  kMagnitude = 2,  // |z|
  kPower = 3,      // |z|^2
  kReal = 4,       // the real part of z
  kComplex = 5     // z itself; DType::kC64
};
/// What a frame shows.
enum class Product {
  kMip = 1,         // maximum along an axis
  kAip = 2,         // mean along z
  kBscan = 3,       // a plane
  kVolume = 4,      // a whole volume
  kEvent = 5,       // Frame::event alone
  kAngiogram = 20,  // mean motion contrast along z, of repeated patterns
  kSpectrum = 21,   // one record
  kAscan = 22       // one A-scan
};
/// Form of the records of Product::kSpectrum: as the source delivered them (the default), or as the
/// transform gets them.
enum class SpectrumForm { kDefault = 0, kRaw = 1, kCorrected = 2 };
/// kX: along a B-scan. kY: across the B-scans. kZ: depth; of tomograms along the axis of rotation.
enum class Axis { kDefault = 0, kX = 1, kY = 2, kZ = 3 };
/// What happens when the client reads too slowly: the newest frame stays; the oldest of a queue is
/// dropped; the stream ends (Error::reason SLOW_SUBSCRIBER). Default: kLatest for images,
/// kLossless for volumes and events.
enum class Delivery { kDefault = 0, kLatest = 1, kDropOldest = 2, kLossless = 3 };
/// kRaw: the array itself; else a picture file.
enum class Encoding { kRaw = 1, kPng = 2, kJpeg = 3, kWebp = 4 };
/// What a picture of a volume shows along its axis: one plane, the maximum, mean, minimum, or the
/// standard deviation of each line.
enum class Rendering { kPlane = 1, kMax = 2, kMean = 3, kMin = 4, kStd = 5 };
/// Colours from dark to bright; kViridis to kPlasma as in matplotlib.
enum class ColourMap {
  kGray = 1,
  kGrayInverted = 2,
  kViridis = 3,
  kMagma = 4,
  kInferno = 5,
  kPlasma = 6,
  kHot = 7
};
/// kLive: a ring, in which completed volumes are overwritten unless they are held. kCapture: every
/// volume is held. Default: kCapture for counted scans, kLive for continuous ones.
enum class RetentionMode { kDefault = 0, kLive = 1, kCapture = 2 };
/// What happens to a complete volume: a client decides (the default), it is committed, or
/// discarded.
enum class Disposition { kDefault = 0, kAsk = 1, kAutoCommit = 2, kAutoDiscard = 3 };
/// Form of a committed volume: kOmeZarr05 is a directory, every other one a file with a .json of
/// metadata beside it.
enum class Format {
  kOmeZarr05 = 1,
  kNpy = 2,
  kNrrd = 3,
  kNifti = 4,
  kOmeTiff = 5,
  kMatlab = 6,  // v5, up to 2 GiB
  kHdf5 = 7,
  kBin = 8  // the voxels alone
};
enum class ScanState {
  kQueued = 1,    // waits for its turn in a queue
  kRunning = 2,   // takes records, or waits for the first ones
  kDraining = 3,  // takes no more records and finishes the work in flight
  // final (IsFinal):
  kDone = 4,    // ended as it should
  kFailed = 5,  // by an error of source or device; completed volumes stay held
  kCancelled = 6,
  kLost = 7  // the server died before its end
};
/// Which call began an operation.
enum class OperationKind { kCommit = 1, kSpill = 2, kRestore = 3, kDerive = 4, kJob = 5 };
enum class OperationState {
  kRunning = 1,
  kCancelling = 2,  // asked to end, has not ended yet
  // final (Operation::done):
  kSucceeded = 3,
  kFailed = 4,
  kCancelled = 5
};
enum class OperationStage {
  kWaiting = 1,    // for a thread, or for a device and its memory
  kPreparing = 2,  // files, tables and memory, before the first byte
  kCopying = 3,    // spill, restore: bytes from one tier to the other
  kWriting = 4,    // commit: voxels to storage
  kComputing = 5,  // derive, job
  kSyncing = 6     // commit: makes the files durable; too late for a cancel
};
enum class VolumeState {
  kAcquiring = 1,   // being made; it cannot be read
  kHeld = 2,        // complete and immutable, in device memory or spilled
  kCommitting = 3,  // being written to storage; kHeld again if that fails
  kCommitted = 4,   // in storage; its memory is free
  kDiscarded = 5,   // gone
  kFailed = 6       // never completed; Volume::reason says why
};

struct Levels {
  float lo = 0, hi = 0;
};

/// A simulated spectrometer that images a phantom.
struct Simulated {
  uint64_t seed = 0;
  bool as_fast_as_possible = false;  // ignores record_rate_hz
};
/// Raw records of a file under one of the server's replay roots.
struct Replay {
  std::string path;
  double rate_hz = 0;         // 0 = as fast as possible
  uint32_t loops = 1;         // 0 = until the scan has its volumes
  uint64_t header_bytes = 0;  // of a raw file, before its first record
  bool allow_partial =
      false;  // leave out the incomplete last record of a file that was cut off, with a warning
};
/// A process on the server's host feeds the scan: client/cpp/include/octavo/octavo_ring.h, with a
/// ticket of Client::OpenRing.
struct Ring {
  uint32_t slots = 0;           // 0 = chosen
  double idle_timeout_s = 0;    // 0 = 60; negative = never
  double restart_grace_s = 0;   // 0 = idle_timeout_s; negative: the scan ends with its producer
  bool producer_waits = false;  // while the ring is full; else it loses records
};
struct RingTicket {
  std::string socket, ticket;  // for octavo_ring_open; valid once
  double expires_seconds = 0;
};
struct Raster {
  uint32_t ascans_per_bscan = 0, bscans_per_volume = 0;  // x, y
  uint32_t volumes = 0;                                  // 0 = until stopped
  bool bidirectional = false;
  uint32_t flyback_records = 0;
  double extent_x_mm = 0, extent_y_mm = 0;  // 0 = 1 um a step
};
/// The spectral chain. Fields that are not set keep the server's default.
struct Processing {
  std::vector<float> background;  // [S], subtracted; empty = mean of each B-scan with its flyback
  std::vector<double> wavelength_nm;            // [S], strictly monotonic; excludes k_index
  std::vector<float> k_index;                   // [N], source position of each output sample
  double dispersion_a2 = 0, dispersion_a3 = 0;  // rad per sample^2, ^3
  uint32_t fft_length = 0, depth = 0;           // 0 = chosen
  Value value = Value::kDefault;
  std::optional<Levels> levels;
  std::optional<DType> dtype;
  std::string json;  // an octavo.v1.Processing in protobuf's JSON form: any other field of the
                     // contract; the fields above win
};
struct CommitOptions {
  std::string destination;  // relative to the first storage root; may hold {scan} {index}
                            // {index:05} {title} {date}
  std::optional<Format>
      format;        // default: by the destination's ending (".nii", ".h5", ...), else OME-Zarr
  std::string json;  // an octavo.v1.CommitOptions in protobuf's JSON form, as for Processing
};
struct ScanSpec {
  std::variant<std::monostate, Simulated, Replay, Ring> source;  // monostate: as `json` says
  Raster pattern;                                                // all zero: as `json` says
  uint32_t samples_per_record = 0;                               // 0 = from the file or the default
  RawType raw_type = RawType::kDefault;
  double record_rate_hz = 0;
  Processing processing;
  bool aip = false;  // the mean projection too
  RetentionMode retention = RetentionMode::kDefault;
  Disposition disposition = Disposition::kDefault;
  uint32_t hold_slots = 0;
  std::optional<CommitOptions> auto_commit;
  bool resume = false;  // the next process of the server goes on with it (ON_RESTART_RESUME)
  std::string title;
  std::map<std::string, std::string> labels;
  std::string json;  // an octavo.v1.ScanSpec in protobuf's JSON form: any other field of the
                     // contract; the fields above win
};

struct Scan {
  std::string name;  // scans/<id>
  ScanState state = ScanState::kQueued;
  std::string reason;       // why it ended or failed, for people
  std::string reason_code;  // for programs, as Error::reason: "COMPLETED"; empty: not ended
  std::string device, plan;
  int64_t records = 0, volumes_done = 0, volumes_held = 0, volumes_dropped = 0, blocks_dropped = 0,
          missing_ascans = 0;
  double records_per_second = 0, volumes_per_second = 0, bytes_per_second = 0;
  int64_t current_volume = -1;  // being acquired; -1 = none
  double current_fraction = 0;
  std::vector<std::string> volumes;  // in device memory, oldest first
  std::string resumed_from;          // scans/<id> of an earlier process that it goes on with
  std::string json;                  // the whole octavo.v1.Scan
};
inline bool IsFinal(ScanState state) { return state >= ScanState::kDone; }

/// The memory needs of a scan (bytes) and whether it would be admitted.
struct Admission {
  bool admitted = false, retryable = false;
  std::string device, advice, plan;
  int64_t wanted_bytes = 0, free_bytes = 0, budget_bytes = 0, volume_bytes = 0;
};

struct Volume {
  std::string name, title, last_error, digest;
  std::string reason;       // why it failed or left memory, for people
  std::string reason_code;  // for programs, as Error::reason: "EXPIRED"; empty: none
  std::string parent;       // jobs/<id> of the job that made it, else scans/<id>
  int64_t index = 0;
  VolumeState state = VolumeState::kAcquiring;
  std::vector<int64_t> shape;     // along axes
  std::vector<std::string> axes;  // slowest first: "y", "x", "z"; tomograms "z", "y", "x"
  DType dtype = DType::kU8;
  std::vector<double> spacing_um;  // per axis; json's spacingUnits say where it is no length
  bool complete = false;
  bool mirrored = false;  // a copy is on the server's disk: a crash does not lose it
  int64_t missing_ascans = 0, bytes = 0;
  std::map<std::string, std::string> labels;
  std::string owner, project;  // whose it is: who made it, and that caller's project
  std::string committed_to;    // absolute path, if COMMITTED
  std::string json;            // the whole octavo.v1.Volume
};

/// Memory of an array, for ArrayAllocator. Throws std::bad_alloc.
void* AllocateArray(size_t bytes);
void FreeArray(void* memory, size_t bytes) noexcept;

/// Leaves new elements as they are and asks for large pages for large arrays: setting gigabytes to
/// 0, and taking them in pages of 4 KiB, would last longer than their transfer.
template <class T>
struct ArrayAllocator {
  using value_type = T;
  ArrayAllocator() = default;
  template <class U>
  ArrayAllocator(const ArrayAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(size_t count) {
    if (count > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(AllocateArray(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t count) noexcept { FreeArray(memory, count * sizeof(T)); }
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
  template <class U>
  bool operator==(const ArrayAllocator<U>&) const {
    return true;
  }
};
/// Bytes of an array. `Bytes(n)` and `resize` leave new bytes uninitialised; `Bytes(n, value)` does
/// not.
using Bytes = std::vector<std::byte, ArrayAllocator<std::byte>>;

/// What an array is, without its elements.
struct ArrayLayout {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
};
/// Elements in C order.
struct Array {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  Bytes data;

  /// The elements as T, which must have the size of dtype (std::logic_error otherwise).
  template <class T>
  std::span<const T> as() const& {
    if (sizeof(T) != ItemSize(dtype))
      throw std::logic_error("Array::as: the type has another size than the array's elements");
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() && = delete;  // the elements would be gone with the temporary
  static size_t ItemSize(DType dtype);
};

struct CommitResult {
  std::string path, checksum;
  int64_t bytes = 0, raw_bytes = 0;
  double seconds = 0;
};
struct OperationProgress {
  OperationStage stage = OperationStage::kWaiting;
  int64_t done_bytes = 0, total_bytes = 0, disk_bytes = 0;
  double fraction = 0;  // of the whole, 0 ... 1
  double seconds = 0;   // since its begin
};
/// Long work that the server does for clients: commits, moves, derived volumes, jobs.
struct Operation {
  std::string name;  // operations/<id>
  OperationKind kind = OperationKind::kCommit;
  OperationState state = OperationState::kRunning;
  bool done = false;                   // it does not change any more
  std::string target, request_id;      // volumes/<id> or jobs/<id>
  OperationProgress progress;          // how far it is
  std::optional<Error> error;          // if FAILED or CANCELLED
  std::optional<CommitResult> commit;  // of a commit that has succeeded
  std::vector<std::string> volumes;    // that it makes
  std::string json;                    // the whole octavo.v1.Operation
};

/// How PNG, JPEG and WebP are made; as octavo.v1.ImageOptions. RAW images are only turned and
/// shrunk.
struct ImageOptions {
  ColourMap colour_map = ColourMap::kGray;
  std::optional<Levels> levels;       // value units
  std::optional<Levels> percentiles;  // 0 ... 100
  bool display_levels = false;        // those that the scan names
  uint32_t max_width = 0, max_height = 0;
  bool square_pixels = false, depth_down = false, scale_bar = false, colour_bar = false;
  uint32_t quality = 0;  // JPEG and WebP; 0 = 85; WebP of 100 is exact
};
/// A coarser array, as octavo.v1.Downsampling: what of the voxels of a cube each sample is.
enum class Downsampling { kMax = 1, kMean = 2 };
/// Which voxels of a volume, and how; as octavo.v1.ReadVolumeRequest.
struct ReadOptions {
  std::vector<int64_t> start, count;  // a box, along the axes of the volume; empty = all of it
  uint32_t downsample = 1;            // voxels of a cube's side: a power of two up to 64
  Downsampling downsampling = Downsampling::kMax;
  std::optional<Levels> window;  // stored units: samples become U8, 0 at lo and 255 at hi
  /// Connections over which a large box comes at the same time, 1 to 16; 0 = as the processors
  /// allow, at most 8. At most one for every 8 MiB of the box.
  uint32_t connections = 0;
};
/// Which picture of a volume, and how; as octavo.v1.RenderVolumeRequest.
struct RenderOptions {
  Rendering rendering = Rendering::kPlane;
  Axis axis = Axis::kDefault;          // cut across or projected along
  std::optional<int64_t> index;        // kPlane, of the whole axis; none = the middle
  int64_t begin = 0, end = 0;          // projections: a slab; end 0 = to the end of the axis
  std::vector<int64_t> start, count;   // a box, along the axes of the volume; empty = all of it
  Encoding encoding = Encoding::kPng;  // kRaw: the array
  ImageOptions image;
};
/// As octavo.v1.RenderedPicture.
struct RenderedPicture {
  Array array;  // kRaw: the array. Else `data` is the file, `shape` its rows and columns
  Encoding encoding = Encoding::kPng;
  std::vector<std::string> axes;  // of rows and columns
  std::vector<double> spacing_um;
  Axis axis = Axis::kZ;
  std::vector<int64_t> start, count;  // the box that is shown
  double begin_um = 0, end_um = 0;    // where it begins and ends along `axis`
  Levels levels;                      // shown as dark and bright, in stored units
  Levels values;                      // the same in value units
  std::string unit;                   // of `values`
  double scale_bar_um = 0;
  int64_t colour_bar_columns = 0;
  std::vector<std::string> warnings;  // what may not be as intended, for people
};
struct SubscribeOptions {
  std::string parent;                         // scans/<id> or jobs/<id>; empty = all, now and later
  std::map<std::string, std::string> labels;  // only scans and jobs that carry all of these
  std::vector<Product> products = {Product::kMip};
  Axis axis = Axis::kDefault;
  // B-scan number, none = the middle; of spectra and A-scans the column x, none = any
  std::optional<int64_t> index;
  // Product::kMip along z of scans: only the depths [first, second), of complete volumes
  std::optional<std::pair<int64_t, int64_t>> slab;
  SpectrumForm spectrum = SpectrumForm::kDefault;  // Product::kSpectrum, and only there
  Encoding encoding = Encoding::kRaw;
  std::optional<ImageOptions> image;
  Delivery delivery = Delivery::kDefault;
  uint32_t queue_length = 0;
  double max_rate_hz = 0;
  std::optional<uint64_t> from_sequence;  // resume: the last Frame::sequence + 1, one product
  bool preview = true;
  // The frames come through memory that the server on this host shares with this program, which is
  // sooner than gRPC (a projection on an H200 in 0.6 ms instead of 0.95): for real time. Throws
  // where that cannot be (EXPORT_REMOTE, EXPORT_DISABLED, UNIMPLEMENTED by an old server)
  bool same_host = false;
  // Product::kVolume: the client reads large volumes over several connections of its own, which is
  // faster than the one stream, as FrameStream::Next says. false: all through the stream. Of no
  // effect with same_host.
  bool volumes_by_read = true;
};

/// What happened to a scan; as octavo.v1.ScanEvent.
struct ScanEvent {
  enum class Kind {
    kState = 1,           // the scan is QUEUED or DRAINING
    kStarted = 2,         // it takes records
    kVolumeStarted = 3,   // the first record of a volume has arrived
    kVolumeDone = 4,      // a volume is held, on its device
    kVolumeState = 5,     // what else happened to a volume
    kInterrupted = 6,     // stopped, cancelled or interrupted before its end
    kFinished = 7,        // DONE, FAILED or CANCELLED: the last one
    kProcessing = 8,      // volume_index: the first volume made with a new processing
    kGap = 9,             // `count` records before `record` were lost
    kMarker = 10,         // at `record`
    kSource = 11,         // a client connected, a camera was opened
    kVolumeDropped = 12,  // no slot was free for it, or a gap covered it whole
    kExpiring = 13        // a volume will be discarded soon, because its time to live ends
  };
  Kind kind = Kind::kState;
  std::string text;                         // for people
  int64_t volume_index = -1;                // -1: about none
  int64_t record = -1;                      // counted from the start of the scan; -1: about none
  int64_t count = 0;                        // kGap: records
  std::string marker;                       // kMarker: its name
  std::optional<ScanState> scan_state;      // kState, kStarted, kFinished: the state reached
  std::optional<VolumeState> volume_state;  // kVolumeDone, kVolumeState: the state then
};

/// The record that a spectrum or an A-scan shows; as octavo.v1.FrameRecord.
struct FrameRecord {
  std::optional<int64_t> record;  // counted from the start of the scan
  int64_t row = 0, column = 0;    // y and x in the volume
  bool corrected = false;
  std::optional<double> minimum, maximum;                 // of the array, stored units
  std::optional<double> saturation_low, saturation_high;  // of raw samples
  std::vector<uint32_t> saturated_samples;                // numbers of the saturated samples
};

struct Frame {
  std::string parent, volume;  // parent: scans/<id> or jobs/<id>
  int64_t volume_index = -1;
  Product product = Product::kMip;
  Axis axis = Axis::kZ;
  uint64_t sequence = 0;        // counted per parent, product, axis, index and spectrum form
  uint64_t dropped_before = 0;  // that this stream missed since the last frame of the topic
  bool complete = false;
  Encoding encoding = Encoding::kRaw;
  Array array;  // RAW: the array. PNG, JPEG, WebP: `data` is the file, `shape` its rows and
                // columns. Events: empty
  std::vector<std::string> axes;
  std::vector<double> spacing_um;
  Levels display;    // stored units
  std::string unit;  // of values: value = value_offset + stored * value_step
  double value_offset = 0, value_step = 1;
  double scale_bar_um = 0;
  int64_t colour_bar_columns = 0;
  int64_t acquired_ns = 0, published_ns = 0;  // monotonic clock of the server
  std::optional<ScanEvent> event;             // Product::kEvent, and only there
  std::optional<FrameRecord> record;          // kSpectrum and kAscan, and only there
};

/// Frames in the order of their arrival. Reads ahead by one frame at most: the server counts the
/// frames that a slow reader misses. Volumes that the client reads (SubscribeOptions) are the
/// exception: it hears of them at once, reads each when its turn comes, and applies `delivery` to
/// those that wait.
class FrameStream {
 public:
  class Impl;  // for the library
  FrameStream(FrameStream&&) noexcept;
  FrameStream& operator=(FrameStream&&) noexcept;
  ~FrameStream();  // cancels

  /// Waits for the next frame; false at the end (scan over, or cancelled). Throws Error if the
  /// stream broke off. A volume that has left memory before it was read counts as dropped; where
  /// nothing may be lost (Delivery::kLossless, the default for volumes) it ends the stream with an
  /// Error (VOLUME_GONE, VOLUME_STATE), whose numbers have resume_from.
  bool Next(Frame* frame);
  /// Ends the stream; Next returns false soon. Any thread.
  void Cancel();

  /// for (Frame& frame : client.Subscribe(...)): one pass.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Frame;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    explicit Iterator(FrameStream* stream) : stream_(stream) { ++*this; }
    Frame& operator*() const { return *frame_; }
    Frame* operator->() const { return frame_.get(); }
    Iterator& operator++() {
      if (!stream_->Next(frame_.get())) stream_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Iterator& other) const { return stream_ == other.stream_; }

   private:
    FrameStream* stream_ = nullptr;
    std::shared_ptr<Frame> frame_ = std::make_shared<Frame>();
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return {}; }

 private:
  friend class Client;
  explicit FrameStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The kind of handed-over memory; values as octavo.v1.ExportKind.
enum class MemoryKind { kHostMemfd = 1, kCudaVmm = 2 };

struct MappedInfo {
  MemoryKind kind = MemoryKind::kHostMemfd;
  std::string name, of;        // exports/<id>; volumes/... or buffers/...
  std::string memory;          // id of the memory behind it
  uint64_t generation = 0;     // counts its contents
  uint64_t version = 0;        // the server's, of a buffer
  std::string digest;          // of a volume
  std::string scalar;          // "u8" ... "c128"
  uint32_t lanes = 1;          // scalars an element
  std::vector<int64_t> shape;  // C order, without lanes
  int64_t bytes = 0;           // of the array
  int64_t offset = 0;          // of the array in the memory
  std::string device_uuid;     // of a GPU
};

/// A volume or buffer of the server in this process, without a copy (Client::Map). The caller may
/// read its memory until Release or the end of this object, which gives the memory back; until then
/// the server does not use it otherwise. Stays readable after the death of the server or of the
/// Client. Release from one thread, the rest from any.
class Mapped {
 public:
  Mapped(Mapped&&) noexcept;
  Mapped& operator=(Mapped&&) noexcept;
  ~Mapped();

  const MappedInfo& info() const;
  /// The array: an address of the host, or (kCudaVmm) of the device, in its primary context, which
  /// the CUDA runtime uses. To read only; the server has waited for the last write, so there is no
  /// stream to wait for.
  const void* data() const;
  int device() const;  // kCudaVmm: the GPU's ordinal in this process; -1 = host
  /// Host memory as T, which must have the size of a scalar (std::logic_error otherwise, and for
  /// memory of a GPU).
  template <class T>
  std::span<const T> as() const& {
    const std::span<const std::byte> all = HostBytes();
    int64_t elements = info().lanes;
    for (const int64_t extent : info().shape) elements *= extent;
    if (static_cast<size_t>(elements) * sizeof(T) != all.size()) {
      throw std::logic_error("Mapped::as: the type has another size than the array's scalars");
    }
    return {reinterpret_cast<const T*>(all.data()), static_cast<size_t>(elements)};
  }
  template <class T>
  std::span<const T> as() && = delete;  // the memory would be given back with the temporary

  /// Copies the present contents to the caller's own host memory, also from a GPU. Synchronises.
  /// Throws Error (RELEASED; CUDA).
  Bytes Copy() const;
  /// Gives the memory back now, after the work enqueued so far on its device; afterwards it must
  /// not be read. A second call does no harm.
  void Release();
  /// The seconds left to give it back if the server has asked for that. A user that keeps it longer
  /// gets no further exports.
  std::optional<double> Revoked();
  /// The same, but waits for the request; none if the time ran out first. Throws Error
  /// (SERVER_GONE).
  std::optional<double> WaitRevoked(std::chrono::milliseconds at_most);
  /// Throws Error if the memory was given back (RELEASED), if the server asks for it
  /// (EXPORT_REVOKED), or if the server has gone (SERVER_GONE).
  void Check();

 private:
  friend class Handoff;
  class Impl;
  explicit Mapped(std::shared_ptr<Impl> impl);
  std::span<const std::byte> HostBytes() const;
  std::shared_ptr<Impl> impl_;
};
struct MapOptions {
  uint32_t replica = 0;      // of a buffer
  std::string lease_token;   // buffers: of an exclusive lease
  uint64_t lease_fence = 0;  // 0 = unchecked
  std::vector<MemoryKind>
      accept;  // kinds that the caller can use; empty = any (EXPORT_KIND otherwise)
};

/// Memory of this process that is a buffer of the server, in place (Client::ImportBuffer). The
/// caller writes it whenever it likes; the server only reads it, until Close, the end of this
/// object or of this process. Other calls of the server take the buffer by its name. One thread at
/// a time.
class Lent {
 public:
  Lent(Lent&&) noexcept;
  Lent& operator=(Lent&&) noexcept;
  ~Lent();  // ends the buffer and does not wait

  const std::string& name() const;  // buffers/<id>
  /// Tells the server that the bytes have changed: what is requested from here on sees what was
  /// written before. Memory of a GPU: synchronise first. Returns the new version. Throws Error
  /// (NO_BUFFER: it has ended; SERVER_GONE).
  uint64_t Publish();
  /// Why the server has ended it: "DESTROYED", "EXPIRED", "SESSION_ENDED", "RELEASED" (by Close),
  /// "SERVER_GONE"; empty while the buffer is there. After the first four the server reads the
  /// memory no more.
  std::string Ended();
  /// Ends the buffer and waits until the server reads the memory no more. A second call does no
  /// harm. Throws Error (SERVER_GONE: it did not say so in time).
  void Close();

 private:
  friend class Client;
  class Impl;
  explicit Lent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};
/// The array in the memory that is lent. As octavo.v1.ImportBufferRequest.
struct ImportOptions {
  std::string scalar;          // "u8" ... "c128"
  uint32_t lanes = 1;          // scalars an element
  std::vector<int64_t> shape;  // slowest axis first, without lanes; 1 to 3 axes
  std::string device;          // devices/<n>; empty = devices/0
  uint64_t bytes = 0;          // of the memory; 0 = as the array needs
  std::map<std::string, std::string> labels;
  std::string
      session_secret;  // the buffer ends with this session, too; empty = with the connection
};

/// Which entries of a list, and in which order (proto/README.md, Lists).
struct ListOptions {
  std::string filter;    // "labels.eye = \"OD\" AND bytes > 1e6"; empty = all
  std::string order_by;  // "create_time desc, name"; empty = the list's own
};

/// PEM files for TLS over TCP; the Unix socket needs none. Empty ones are those of the environment.
struct TlsFiles {
  /// Of the authority that issued the server's certificate ($OCTAVO_CA_FILE). With it the client
  /// speaks TLS; without it, it does not.
  std::string ca_file;
  std::string cert_file;    // the client's own certificate, to log in with ($OCTAVO_CERT_FILE)
  std::string key_file;     // its private key ($OCTAVO_KEY_FILE)
  std::string server_name;  // a name in the server's certificate, if the host of the address is
                            // none of them ($OCTAVO_SERVER_NAME)
};

/// A connection to octavod.
class Client {
 public:
  /// `address`: "host:port" or "unix:/path"; empty = $OCTAVO_ADDRESS or 127.0.0.1:50051. `timeout`
  /// is for short calls. Connects with the first call. The first Client of a process sets
  /// GRPC_EXPERIMENTS (faster reads) unless it is set. `token_file`: a file with the bearer token
  /// to log in with, as octavo token add makes it; empty = $OCTAVO_TOKEN_FILE, or no token. `tls`:
  /// files for TLS. Throws Error if one of the files cannot be used.
  explicit Client(std::string address = "",
                  std::chrono::milliseconds timeout = std::chrono::seconds(30),
                  std::string token_file = "", const TlsFiles& tls = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const std::string& address() const;

  // -- scans
  /// `request_id`: a retry with the same id and spec returns the first answer.
  Scan SubmitScan(const ScanSpec& spec, const std::string& request_id = "");
  /// The needs and the answer of SubmitScan, without starting anything.
  Admission PlanScan(const ScanSpec& spec);
  Scan GetScan(const std::string& name);
  std::vector<Scan> ListScans(const ListOptions& options = {});  // newest first
  /// Calls back with the scan now, at every change and twice a second, until its final state or
  /// until `each` returns false. Returns the last state of the scan.
  Scan WatchScan(const std::string& name, const std::function<bool(const Scan&)>& each);
  /// Waits for the end of a scan.
  Scan WaitScan(const std::string& name);
  /// Changes the processing from the next volume on.
  /// `fields`: the names of those of octavo.v1.Processing that change; {"*"} = all of them.
  Scan UpdateScan(const std::string& name, const Processing& processing,
                  const std::vector<std::string>& fields = {"*"});
  Scan StopScan(const std::string& name);    // after the current volume
  Scan CancelScan(const std::string& name);  // at once
  /// For a scan with source Ring: the ticket for a process on the server's host.
  RingTicket OpenRing(const std::string& scan);
  /// The same for a tomography job whose input is pushed projections. `slots`: frames that its ring
  /// holds, 2 to 1024; 0 = 8. The first ticket of a job makes its ring.
  RingTicket OpenJobRing(const std::string& job, uint32_t slots = 0);

  // -- volumes
  Volume GetVolume(const std::string& name);
  /// Volumes the server holds in any tier, oldest first; `parent`: only of this scans/<id> or
  /// jobs/<id>.
  std::vector<Volume> ListVolumes(const std::string& parent = "", const ListOptions& options = {});
  /// The voxels of a volume, or of the box at `start` of extent `count`, along its axes.
  Array Read(const std::string& name, const std::vector<int64_t>& start = {},
             const std::vector<int64_t>& count = {});
  /// The same, or a coarser picture of it that the volume's device makes.
  Array Read(const std::string& name, const ReadOptions& options);
  /// The same into the caller's memory, which must have exactly the bytes of the box (Error,
  /// kInvalidArgument, field "into"): faster for large volumes, because the memory need not be
  /// fresh. After an Error it may hold a part of the voxels.
  ArrayLayout ReadInto(const std::string& name, std::span<std::byte> into,
                       const ReadOptions& options = {});
  /// A picture of a held volume: a plane, a slab or a projection.
  RenderedPicture Render(const std::string& name, const RenderOptions& options = {});
  Volume HoldVolume(const std::string& name);
  Volume ReleaseVolume(const std::string& name);  // takes HoldVolume back
  /// Writes a held volume to storage and frees its memory. Calls `progress` at every change; if it
  /// returns false the commit is cancelled (Error, CANCELLED) and the volume stays held. A retry
  /// with the same request_id finds the first commit, running or ended.
  CommitResult Commit(const std::string& name, const CommitOptions& options,
                      const std::function<bool(const OperationProgress&)>& progress = nullptr,
                      const std::string& request_id = "");
  /// Begins the same and does not wait for it. The commit runs to its end, whatever becomes of this
  /// program, unless CancelOperation ends it.
  Operation StartCommit(const std::string& name, const CommitOptions& options,
                        const std::string& request_id = "");
  Volume DiscardVolume(const std::string& name);

  // -- long work
  Operation GetOperation(const std::string& name);
  std::vector<Operation> ListOperations();  // newest first
  /// Waits until the operation has ended, or for `wait` if that is shorter (default: no limit). How
  /// it ended is in the Operation, and throws nothing.
  Operation WaitOperation(const std::string& name,
                          std::optional<std::chrono::milliseconds> wait = std::nullopt);
  /// Calls back with the operation now, at every change and twice a second, until it has ended or
  /// until `each` returns false. Returns its last state.
  Operation WatchOperation(const std::string& name,
                           const std::function<bool(const Operation&)>& each);
  /// Asks it to end: what it works on stays as it was. It may take a moment.
  Operation CancelOperation(const std::string& name);

  // -- memory of the server in this process
  /// Maps the memory of a held volume, or of a buffer's replica under an exclusive lease, without a
  /// copy. The server must be on this host and have a hand-over socket (handoff.unix). The first
  /// use of a piece of memory brings a descriptor, which is mapped; a later volume in memory that
  /// is already mapped needs only one message. GPU: needs libcuda.so.1 when it runs, not when it is
  /// linked. Throws Error with the reasons of ExportService.Export and of the socket, SERVER_GONE,
  /// CUDA.
  Mapped Map(const std::string& name, const MapOptions& options = {});
  /// Unmaps unused memory that is kept for later volumes.
  void ForgetMappings();

  // -- memory of this process in the server
  /// Lends memory of this process to a new buffer, by its descriptor and without a copy: a memory
  /// file with F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE (map it to write before the second seal),
  /// without holes; for a server with GPUs a descriptor of cuMemExportToShareableHandle, of memory
  /// of the same GPU. The caller keeps the descriptor. The server must be on this host and have a
  /// hand-over socket (handoff.unix). Throws Error with the reasons of IngestService.ImportBuffer
  /// and of the socket, SERVER_GONE.
  Lent ImportBuffer(int descriptor, const ImportOptions& options);

  // -- live products
  FrameStream Subscribe(const SubscribeOptions& options);
  /// Calls back with each frame until the scan ends or `each` returns false.
  void Subscribe(const SubscribeOptions& options, const std::function<bool(const Frame&)>& each);

  // -- the server
  std::string InfoJson();  // octavo.v1.Info in protobuf's JSON form
  bool Health();           // grpc.health.v1: whether the server serves

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octavo::client
