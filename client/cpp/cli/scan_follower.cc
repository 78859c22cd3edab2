#include "client/cpp/cli/scan_follower.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "octavo/v1/ingest.grpc.pb.h"

#include "client/cpp/cli/field_flags.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/wire/seconds.h"
#include "server/model/tomography_spec.h"
#include "server/storage/projections/growing_projections.h"
#include "server/tomography/half_turn.h"

namespace octavo::cli {
namespace {

using storage::FrameKind;
using storage::GrowingFrames;

constexpr std::chrono::milliseconds kLookEvery{200};
constexpr std::chrono::seconds kTellAfter{1};
// Fields whose number no one has told are all there when no more have come for so long.
constexpr double kFieldsSettle = 2;
// The last frame is watched for a second before it is taken.
constexpr double kSettles = 2;
// The server gives up later than this program, which says why.
constexpr double kServerPatience = 30;
constexpr int64_t kMostFrames = 1'000'000;  // of the server (server/source/push_projections.cc)
constexpr int64_t kMessageBytes = 2 << 20;  // the size at which gRPC is fastest

storage::ProjectionOptions OptionsOf(const v1::TomographyJob& spec) {
  const v1::ProjectionFile& file = spec.file();
  storage::ProjectionOptions options{.projections = file.projections(),
                                     .flats = file.flats(),
                                     .darks = file.darks(),
                                     .angles = file.angles()};
  options.angle_values.assign(spec.angles_rad().begin(), spec.angles_rad().end());
  if (file.angle_unit() == v1::ANGLE_UNIT_DEGREES)
    options.angle_unit = storage::AngleUnit::kDegrees;
  if (file.angle_unit() == v1::ANGLE_UNIT_RADIANS || !options.angle_values.empty())
    options.angle_unit = storage::AngleUnit::kRadians;
  const v1::TomographyPreparation& preparation = spec.preparation();
  if (preparation.ignore_fields() || preparation.already_sinograms())
    options.flats = options.darks = "-";
  return options;
}

const char* NameOf(size_t kind) {
  static constexpr const char* kNames[] = {"projections", "flat fields", "dark fields"};
  return kNames[kind];
}

v1::Dtype OnWire(DType dtype) { return static_cast<v1::Dtype>(dtype); }

}  // namespace

/// A stream to the job. A thread of its own reads the answers.
class ScanFollower::Connection {
 public:
  Connection(Session& session, const std::string& job, std::function<bool()> stop)
      : stop_(std::move(stop)),
        stream_(v1::IngestService::NewStub(session.channel())->PushProjections(&context_)) {
    v1::PushProjectionsRequest hello;
    hello.set_job(job);
    stream_->Write(hello);
    reader_ = std::thread([this] {
      for (v1::PushProjectionsResponse answer; stream_->Read(&answer);) Note(answer);
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    });
  }
  ~Connection() {
    if (reader_.joinable()) (void)Abandon();
  }

  /// Whether the job takes no more, or nothing is to be sent any more.
  bool over() {
    const std::lock_guard lock(mutex_);
    return ended_ || done_ || stop_();
  }
  /// Waits for credit; false if the stream is over.
  bool Send(const v1::PushProjectionsRequest& message) {
    {
      std::unique_lock lock(mutex_);
      while (!ended_ && !done_ && !stop_() && credit_ <= sent_) changed_.wait_for(lock, kLookEvery);
      if (ended_ || done_ || stop_()) return false;
      ++sent_;
    }
    return stream_->Write(message);
  }
  /// Says that no more will come, and waits until the job has taken everything.
  grpc::Status End() {
    v1::PushProjectionsRequest end;
    end.set_end(true);
    stream_->Write(end);
    {
      std::unique_lock lock(mutex_);
      while (!ended_ && !done_ && !stop_()) changed_.wait_for(lock, kLookEvery);
    }
    return stop_() ? Abandon() : Finish();
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    reader_.join();
    return stream_->Finish();
  }
  grpc::Status Abandon() {
    context_.TryCancel();
    reader_.join();
    return stream_->Finish();
  }

 private:
  void Note(const v1::PushProjectionsResponse& answer) {
    const std::lock_guard lock(mutex_);
    credit_ = answer.credit();
    done_ = answer.done();
    changed_.notify_all();
  }

  const std::function<bool()> stop_;
  grpc::ClientContext context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::PushProjectionsRequest, v1::PushProjectionsResponse>>
      stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t credit_ = 0, sent_ = 0;
  bool done_ = false, ended_ = false;
  std::thread reader_;  // last: it uses the rest
};

ScanFollower::ScanFollower(Session& session, const v1::TomographyJob& spec, FollowOptions options)
    : session_(session), spec_(spec), options_(options) {}

ScanFollower::~ScanFollower() = default;

bool ScanFollower::Refuse(const std::string& problem) {
  std::cerr << "octavo: " << Printable(spec_.file().path()) << ": " << Printable(problem) << "\n";
  session_.exit_code = kFailed;
  return false;
}

bool ScanFollower::Look() {
  waits_.clear();
  if (scan_ == nullptr) {
    auto opened = storage::GrowingProjections::Open(spec_.file().path(), OptionsOf(spec_));
    if (absl::IsUnavailable(opened.status())) {
      waits_ = std::string(opened.status().message());
      return true;
    }
    if (!opened.ok()) return Refuse(std::string(opened.status().message()));
    scan_ = *std::move(opened);
  }
  const absl::Status looked = scan_->Look();
  if (!looked.ok() && !absl::IsUnavailable(looked)) return Refuse(std::string(looked.message()));
  if (!looked.ok()) waits_ = std::string(looked.message());
  // A file that grows without frames is not news.
  const std::array<int64_t, 4> now = {
      scan_->frames(FrameKind::kProjection).whole, scan_->frames(FrameKind::kFlat).whole,
      scan_->frames(FrameKind::kDark).whole, std::ssize(scan_->angles_rad())};
  if (now != seen_) grown_ = Clock::now();
  seen_ = now;
  return true;
}

void ScanFollower::Await(const std::string& what) {
  absl::StrAppend(&waits_, waits_.empty() ? "" : "; ", what);
}

bool ScanFollower::HasStopped() const {
  // A frame that is there is still taken.
  const bool settles =
      scan_ != nullptr && std::any_of(kKinds.begin(), kKinds.end(), [&](Kind kind) {
        return scan_->frames(static_cast<FrameKind>(kind)).settles;
      });
  return std::chrono::duration<double>(Clock::now() - grown_).count() >
         options_.timeout_s + (settles ? kSettles : 0);
}

bool ScanFollower::Uses(Kind kind) const {
  if ((kind == kFlat ? options_.flats : options_.darks) == 0U) return false;
  return OptionsOf(spec_).*(kind == kFlat ? &storage::ProjectionOptions::flats
                                          : &storage::ProjectionOptions::darks) !=
         "-";
}

bool ScanFollower::NeedsFlats() const {
  const v1::TomographyPreparation& preparation = spec_.preparation();
  return IsInteger(scan_->frames(FrameKind::kProjection).dtype) && Uses(kFlat) &&
         (preparation.logarithm() || !preparation.has_logarithm());
}

bool ScanFollower::CountProjections(bool* known) {
  const GrowingFrames& data = scan_->frames(FrameKind::kProjection);
  const std::optional<int64_t> angles = scan_->planned_angles();
  if (scan_->angles_dataset().empty()) {
    const std::string place = scan_->PlaceOfAngles();
    const std::string allowed = "allowed --angles first:last:count, or a dataset (--angles-file)";
    if (place.empty()) return Refuse(absl::StrCat("has no angles: ", allowed));
    Await(absl::StrCat("has no angles: nothing is at ", place, "; ", allowed));
    return true;
  }
  std::optional<int64_t> count = options_.projections;
  if (!count.has_value()) count = spec_.angles_rad().empty() ? data.planned : angles;
  if (!count.has_value()) count = angles;
  if (!count.has_value()) {
    return Refuse(absl::StrCat("does not say how many projections will come: ", data.dataset,
                               " and its angles may grow; allowed --follow-count N, or --angles "
                               "first:last:count"));
  }
  const auto compare = [&](const std::optional<int64_t>& there, const std::string& dataset) {
    if (!there.has_value() || *there == *count ||
        (options_.projections.has_value() && *there > *count))
      return true;
    return Refuse(absl::StrCat(dataset, " has ", *there, " values for ever, and ", *count,
                               " projections are to come; allowed is the same number"));
  };
  if (!compare(data.planned, data.dataset) || !compare(angles, scan_->angles_dataset()))
    return false;
  wanted_[kProjection] = *count;
  *known = *count > 0;
  return true;
}

bool ScanFollower::CountFields(Kind kind, bool* known) {
  const GrowingFrames& fields = scan_->frames(static_cast<FrameKind>(kind));
  const GrowingFrames& data = scan_->frames(FrameKind::kProjection);
  if (fields.there && (fields.rows != data.rows || fields.columns != data.columns)) {
    return Refuse(absl::StrCat(fields.dataset, " has frames of ", fields.rows, " x ",
                               fields.columns, "; allowed ", data.rows, " x ", data.columns,
                               ", as ", data.dataset, " has"));
  }
  const std::optional<uint32_t>& told = kind == kFlat ? options_.flats : options_.darks;
  int64_t count = -1;  // not known
  if (!Uses(kind)) {
    count = 0;
  } else if (told.has_value()) {
    count = *told;
  } else if (fields.there && fields.planned.has_value()) {
    count = *fields.planned;
  }
  // Fields that the user names are to come, too.
  const std::string& named = kind == kFlat ? spec_.file().flats() : spec_.file().darks();
  const bool counts = kind == kFlat && NeedsFlats(),
             needs = Uses(kind) && (counts || !named.empty()) && count <= 0;
  if (count >= 0 && !needs) {
    wanted_[kind] = count;
    *known = true;
    return true;
  }
  if (fields.whole != fields_[kind]) fields_grown_[kind] = Clock::now();
  fields_[kind] = fields.whole;
  wanted_[kind] = fields.whole;
  if (needs && fields.whole == 0) {
    Await(absl::StrCat("no ", kind == kFlat ? "flat" : "dark", " field is written yet at ",
                       scan_->PlaceOf(static_cast<FrameKind>(kind)), " (",
                       kind == kFlat ? "--flats" : "--darks", ")"));
    if (counts && !std::exchange(told_flats_, true)) {
      std::cerr << "octavo: " << Printable(spec_.file().path())
                << ": waits for flat fields: integers are counts, which need them "
                   "(--transmissions: they are none)\n";
    }
    return true;
  }
  const double unchanged =
      std::chrono::duration<double>(Clock::now() - fields_grown_[kind]).count();
  *known =
      fields.whole == fields.extent && unchanged > std::min(kFieldsSettle, options_.timeout_s / 2);
  return true;
}

bool ScanFollower::CheckCounts() {
  static constexpr const char* kFlags[] = {"--follow-count", "--follow-flats", "--follow-darks"};
  const std::optional<uint32_t> given[] = {options_.projections, options_.flats, options_.darks};
  int64_t all = 0;
  for (const Kind kind : {kProjection, kFlat, kDark}) {
    const GrowingFrames& frames = scan_->frames(static_cast<FrameKind>(kind));
    if (wanted_[kind] > kMostFrames - all) {
      return Refuse(absl::StrCat(
          given[kind].has_value()                              ? kFlags[kind]
          : kind == kProjection && !frames.planned.has_value() ? scan_->angles_dataset()
                                                               : frames.dataset,
          " gives ", wanted_[kind], " ", NameOf(kind), all > 0 ? " after " : "",
          all > 0 ? absl::StrCat(all, " other frames") : "", "; allowed ", kMostFrames,
          " frames in all"));
    }
    all += wanted_[kind];
  }
  return true;
}

bool ScanFollower::CheckHalfTurn() {
  model::TomographySpec spec;
  spec.half_turn = static_cast<model::HalfTurn>(spec_.half_turn());
  const auto count = static_cast<size_t>(wanted_[kProjection]);
  std::vector<double> angles(spec_.angles_rad().begin(), spec_.angles_rad().end());
  if (angles.empty()) angles = scan_->angles_rad();
  if (!spec.takes_half_turn() || angles.size() < count) return true;
  angles.resize(count);
  const v1::IndexRange& used = spec_.projections();
  spec.projections = {.begin = used.begin(), .end = used.end(), .step = used.step()};
  const absl::Status known = tomography::HalfTurnsOf(spec, angles).status();
  if (known.ok()) return true;
  return Refuse(absl::StrCat(known.message(), FlagsFor(session_.app, "tomography.half_turn", "")));
}

bool ScanFollower::AwaitBegin(v1::TomographyJob* spec) {
  const Clock::time_point begun = Clock::now();
  grown_ = begun;
  fields_grown_.fill(begun);
  bool told = false;
  for (;; std::this_thread::sleep_for(kLookEvery)) {
    if (!Look()) return false;
    const bool there =
        scan_ != nullptr && scan_->frames(FrameKind::kProjection).whole > 0 && waits_.empty();
    bool known[3] = {};
    if (there) {
      if (!CountProjections(&known[kProjection]) || !CountFields(kFlat, &known[kFlat]) ||
          !CountFields(kDark, &known[kDark]))
        return false;
    }
    if (known[0] && known[1] && known[2]) break;
    if (HasStopped()) {
      return Refuse(absl::StrCat("nothing new for ", options_.timeout_s,
                                 " s (--follow-timeout): ", WhatIsMissing()));
    }
    if (!there && Clock::now() - begun > kTellAfter && !std::exchange(told, true))
      std::cerr << "octavo: " << Printable(spec_.file().path())
                << ": waits for the first projection\n";
  }
  if (!CheckCounts() || !CheckHalfTurn()) return false;
  const GrowingFrames& data = scan_->frames(FrameKind::kProjection);
  dtype_ = data.dtype;
  for (const FrameKind kind : {FrameKind::kFlat, FrameKind::kDark}) {
    if (scan_->frames(kind).there && scan_->frames(kind).dtype != dtype_) dtype_ = DType::kF32;
  }
  v1::PushedProjections& push = *spec->mutable_push();  // in place of the file
  spec->clear_angles_rad();
  push.set_rows(static_cast<uint32_t>(data.rows));
  push.set_columns(static_cast<uint32_t>(data.columns));
  push.set_frames(static_cast<uint32_t>(wanted_[0] + wanted_[1] + wanted_[2]));
  push.set_dtype(OnWire(dtype_));
  push.set_on_missing(options_.partial ? v1::MISSING_FRAMES_RECONSTRUCT_ANYWAY
                                       : v1::MISSING_FRAMES_FAIL_JOB);
  *push.mutable_idle_timeout() = DurationOf(options_.timeout_s + kServerPatience);
  std::cerr << "octavo: " << Printable(spec_.file().path()) << ": " << wanted_[kProjection]
            << " projections of " << data.rows << " x " << data.columns << " ("
            << Info(data.dtype).name << "), " << wanted_[kFlat] << " flat and " << wanted_[kDark]
            << " dark fields\n";
  return true;
}

std::string ScanFollower::Counts() const {
  std::vector<std::string> counts;
  for (const size_t kind : {kProjection, kFlat, kDark}) {
    if (kind == kProjection || wanted_[kind] > 0)
      counts.push_back(absl::StrCat(sent_[kind], " of ", wanted_[kind], " ", NameOf(kind)));
  }
  return absl::StrJoin(counts, ", ");
}

std::string ScanFollower::WhatIsMissing() const {
  if (!waits_.empty()) return waits_;
  for (const size_t kind : {kProjection, kFlat, kDark}) {
    const GrowingFrames& frames = scan_->frames(static_cast<FrameKind>(kind));
    const bool begun = sequence_ > 0 || wanted_[kProjection] > 0;
    if (begun ? sent_[kind] == wanted_[kind] : kind != kProjection) continue;
    if (!frames.there) {
      static constexpr const char* kFlags[] = {"--data", "--flats", "--darks"};
      return absl::StrCat("has no ", NameOf(kind), ": nothing is at ",
                          scan_->PlaceOf(static_cast<FrameKind>(kind)), " (", kFlags[kind], ")");
    }
    if (!frames.lacks.empty()) return frames.lacks;
    if (kind == kProjection && std::ssize(scan_->angles_rad()) < frames.whole)
      return absl::StrCat(
          "angle ", scan_->angles_rad().size(), " of ",
          scan_->angles_dataset().empty() ? spec_.file().angles() : scan_->angles_dataset(),
          " is not written");
    return absl::StrCat(frames.dataset, " has ", frames.extent, " frames");
  }
  return "";
}

bool ScanFollower::SendFrame(Connection& connection, Kind kind) {
  const GrowingFrames& frames = scan_->frames(static_cast<FrameKind>(kind));
  if (frames.dtype != dtype_ && dtype_ != DType::kF32) {
    return Refuse(absl::StrCat(frames.dataset, " is ", Info(frames.dtype).name, "; allowed is ",
                               Info(dtype_).name,
                               ", as the projections, of fields that come after them"));
  }
  std::vector<char> values(static_cast<size_t>(frames.rows * frames.columns * SizeOf(dtype_)));
  if (const absl::Status read =
          scan_->Read(static_cast<FrameKind>(kind), sent_[kind], dtype_, values.data());
      !read.ok()) {
    waits_ = std::string(read.message());  // the next look may find it better
    return true;
  }
  const int64_t row_bytes = frames.columns * SizeOf(dtype_),
                together = std::max<int64_t>(1, kMessageBytes / row_bytes);
  v1::PushProjectionsRequest message;
  message.set_sequence(sequence_);
  message.set_kind(kind == kDark   ? v1::PushProjectionsRequest::KIND_DARK
                   : kind == kFlat ? v1::PushProjectionsRequest::KIND_FLAT
                                   : v1::PushProjectionsRequest::KIND_PROJECTION);
  if (kind == kProjection)
    message.set_angle_rad(scan_->angles_rad()[static_cast<size_t>(sent_[kind])]);
  for (int64_t row = 0; row < frames.rows; row += together) {
    const int64_t rows = std::min(together, frames.rows - row);
    message.set_first_row(static_cast<uint32_t>(row));
    message.set_rows(static_cast<uint32_t>(rows));
    message.set_data(values.data() + row * row_bytes, static_cast<size_t>(rows * row_bytes));
    if (!connection.Send(message)) return true;
  }
  ++sequence_;
  ++sent_[kind];
  grown_ = Clock::now();  // a slow server must not look like a scan that has stopped
  return true;
}

bool ScanFollower::SendNew(Connection& connection) {
  for (const Kind kind : kKinds) {
    const GrowingFrames& frames = scan_->frames(static_cast<FrameKind>(kind));
    int64_t ready = std::min(frames.whole, wanted_[kind]);
    if (kind == kProjection) ready = std::min(ready, std::ssize(scan_->angles_rad()));
    while (sent_[kind] < ready && !connection.over()) {
      const int64_t before = sent_[kind];
      if (!SendFrame(connection, kind)) return false;
      if (sent_[kind] == before) return true;
    }
  }
  return true;
}

bool ScanFollower::Push(const v1::Job& job, const std::function<bool()>& stop) {
  Connection connection(session_, job.name(), stop);
  ProgressBar bar("following");
  const auto all = static_cast<double>(wanted_[0] + wanted_[1] + wanted_[2]);
  for (; !connection.over(); std::this_thread::sleep_for(kLookEvery)) {
    if (!Look() || (waits_.empty() && !SendNew(connection))) return false;
    bar.Update(static_cast<double>(sequence_) / all, Counts(), 0);
    if (Complete()) break;
    if (!HasStopped()) continue;
    const std::string missing =
        absl::StrCat("nothing new for ", options_.timeout_s, " s (--follow-timeout): ", Counts(),
                     "; ", WhatIsMissing());
    if (!options_.partial || sent_[kProjection] == 0) return Refuse(missing);
    std::cerr << "octavo: " << Printable(spec_.file().path()) << ": " << Printable(missing)
              << "; what came is reconstructed (--follow-partial)\n";
    break;
  }
  if (stop()) return false;
  return Check(session_, connection.over() ? connection.Finish() : connection.End());
}

}  // namespace octavo::cli
