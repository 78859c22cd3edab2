#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/array_flags.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/derive_flags.h"
#include "client/cpp/cli/format_flags.h"
#include "client/cpp/cli/interrupt.h"
#include "client/cpp/cli/list_flags.h"
#include "client/cpp/cli/long_work.h"
#include "client/cpp/cli/npy_file.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/owner_text.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

bool IsInMemory(v1::VolumeState state) {
  return state == v1::VOLUME_STATE_HELD || state == v1::VOLUME_STATE_COMMITTING;
}

void PrintVolume(const Session& session, const v1::Volume& volume) {
  if (session.json) {
    PrintJson(volume);
    return;
  }
  std::cout << volume.name() << "  #" << volume.index() << "  " << ShortName(volume.state())
            << "  [" << volume.shape(0) << ", " << volume.shape(1) << ", " << volume.shape(2)
            << "] " << ShortName(volume.dtype()) << "  "
            << Bytes(static_cast<double>(volume.bytes()));
  if (volume.raw()) std::cout << "  raw spectra";
  if (volume.has_hold_time() && IsInMemory(volume.state()))
    std::cout << "  held " << Seconds(SecondsSince(volume.hold_time()));
  if (volume.missing_ascans() > 0)
    std::cout << "  " << volume.missing_ascans() << " A-scans missing";
  if (volume.missing_frames() > 0)
    std::cout << "  " << volume.missing_frames() << " of " << volume.expected_frames()
              << " frames missing";
  if (const int64_t clipped = volume.clipped_below() + volume.clipped_above(); clipped > 0) {
    std::cout << "  "
              << Clipped(clipped, (volume.shape(0) * volume.shape(1) - volume.missing_ascans()) *
                                      volume.shape(2));
  }
  if (volume.tier() > v1::TIER_DEVICE) std::cout << "  " << ShortName(volume.tier());
  if (volume.mirrored()) std::cout << "  mirrored";
  if (volume.moving() != v1::VOLUME_MOVE_UNSPECIFIED) std::cout << "  " << InWords(volume.moving());
  if (volume.marked()) std::cout << "  marked";
  if (volume.has_expire_time())
    std::cout << "  expires in " << Seconds(SecondsUntil(volume.expire_time()));
  if (volume.orphaned()) std::cout << "  orphaned";
  if (volume.recovered()) std::cout << "  recovered";
  if (volume.shared_leases() > 0) std::cout << "  " << volume.shared_leases() << " leases";
  std::cout << OwnerText(volume);
  if (!volume.title().empty()) std::cout << "  " << Printable(volume.title());
  if (volume.has_commit()) std::cout << "  " << volume.commit().path();
  if (!volume.reason().empty()) std::cout << "  (" << Printable(volume.reason()) << ")";
  if (!volume.last_error().empty())
    std::cout << "  last commit failed: " << Printable(volume.last_error());
  std::cout << "\n";
}

// "y 5 um, x 5 um, z unknown"; what is no length has its word.
std::string SpacingOf(const v1::Volume& volume) {
  std::string text;
  for (int d = 0; d < volume.spacing_um_size() && d < volume.axes_size(); ++d) {
    const v1::SpacingUnit unit =
        d < volume.spacing_units_size() ? volume.spacing_units(d) : v1::SPACING_UNIT_UNSPECIFIED;
    absl::StrAppend(&text, text.empty() ? "" : ", ", volume.axes(d), " ");
    switch (unit) {
      case v1::SPACING_UNIT_MICROMETRE: absl::StrAppend(&text, volume.spacing_um(d), " um"); break;
      case v1::SPACING_UNIT_PER_MICROMETRE:
        absl::StrAppend(&text, volume.spacing_um(d), " cycles per um");
        break;
      case v1::SPACING_UNIT_PER_SAMPLE:
        absl::StrAppend(&text, volume.spacing_um(d), " cycles per sample");
        break;
      default: absl::StrAppend(&text, "unknown"); break;
    }
  }
  return text;
}

// What `show` says below the line that lists have.
void PrintDetails(const Session& session, const v1::Volume& volume) {
  if (session.json) return;
  if (!volume.parent().empty()) std::cout << "  of " << volume.parent() << "\n";
  if (!volume.derived_from().empty())
    std::cout << "  derived from " << volume.derived_from() << "\n";
  if (volume.spacing_um_size() > 0) std::cout << "  spacing " << SpacingOf(volume) << "\n";
  if (volume.has_levels())
    std::cout << "  levels " << volume.levels().lo() << " ... " << volume.levels().hi() << "\n";
  if (!volume.device().empty()) std::cout << "  on " << volume.device() << "\n";
  if (!volume.digest().empty()) std::cout << "  digest " << volume.digest() << "\n";
  for (const auto& [key, value] :
       std::map<std::string, std::string>(volume.labels().begin(), volume.labels().end()))
    std::cout << "  label " << key << "=" << value << "\n";
}

// Prints each message of WatchVolumes until the stream ends.
void WatchVolumes(Session& session, const std::string& filter, bool changes_only) {
  v1::WatchVolumesRequest request;
  request.set_filter(filter);
  request.set_skip_existing(changes_only);
  auto stub = v1::VolumeService::NewStub(session.channel());
  grpc::ClientContext context;  // as long as it runs
  const OnInterrupt interrupt([&context] { context.TryCancel(); });
  const auto stream = stub->WatchVolumes(&context, request);
  v1::WatchVolumesResponse change;
  while (stream->Read(&change)) {
    if (session.json) {
      PrintJson(change);
    } else {
      std::cout << ShortName(change.kind()) << "  ";
      PrintVolume(session, change.volume());
    }
    std::cout.flush();
  }
  const grpc::Status status = stream->Finish();
  if (!interrupt.came()) (void)Check(session, status);
}

// Report missing data before writing the volume, because the file looks like any other.
void WarnOfMissing(Session& session, const std::string& name) {
  v1::GetVolumeRequest request;
  request.set_name(name);
  v1::GetVolumeResponse answer;
  if (!v1::VolumeService::NewStub(session.channel())
           ->GetVolume(session.Context().get(), request, &answer)
           .ok())
    return;  // the commit says why
  if (answer.volume().state() == v1::VOLUME_STATE_COMMITTED) return;
  if (answer.volume().missing_ascans() > 0) {
    std::cerr << "octavo: warning: " << name
              << " is incomplete: " << answer.volume().missing_ascans() << " A-scans are missing\n";
  } else if (answer.volume().missing_frames() > 0) {
    std::cerr << "octavo: warning: " << name
              << " is incomplete: " << answer.volume().missing_frames() << " of "
              << answer.volume().expected_frames() << " frames are missing\n";
  }
}

void Read(Session& session, const v1::ReadVolumeRequest& request, const std::string& path) {
  grpc::ClientContext context;
  auto reader = v1::VolumeService::NewStub(session.channel())->ReadVolume(&context, request);
  v1::ReadVolumeResponse part;
  std::ofstream file;
  uint64_t total = 0, done = 0;
  {
    ProgressBar bar("reading");
    while (reader->Read(&part)) {
      if (part.has_volume()) {
        total = part.total_bytes();
        file.open(path, std::ios::binary);
        v1::ElementType element;
        element.set_dtype(part.dtype());
        file << NpyHead(element, {part.shape().begin(), part.shape().end()});
      }
      file.write(part.data().data(), static_cast<std::streamsize>(part.data().size()));
      done += part.data().size();
      bar.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0,
                 Bytes(static_cast<double>(done)), 0);
    }
  }
  if (!CheckVolume(session, request.name(), reader->Finish())) return;
  file.close();
  if (!file || done != total) {
    std::cerr << "octavo: could not write " << path << "\n";
    session.exit_code = kFailed;
    return;
  }
  std::cout << path << "  " << Bytes(static_cast<double>(done)) << "\n";
}

}  // namespace

bool CheckVolume(Session& session, const std::string& name, const grpc::Status& status) {
  if (Check(session, status)) return true;
  if (ReasonOf(status) != "VOLUME_STATE") return false;
  v1::GetVolumeRequest request;
  request.set_name(name);
  v1::GetVolumeResponse answer;
  const bool known = v1::VolumeService::NewStub(session.channel())
                         ->GetVolume(session.Context().get(), request, &answer)
                         .ok();
  const bool said = absl::StrContains(status.error_message(), answer.volume().commit().path());
  if (known && answer.volume().has_commit() && !said)
    std::cerr << "  it was committed: " << answer.volume().commit().path() << "\n";
  return false;
}

namespace {

// The problem of a name that does not say its kind; empty if it does.
std::string ProblemOfBareName(const std::string& name, const std::vector<std::string>& wanted) {
  if (absl::StrContains(name, '/')) return "";
  const auto forms = [&](absl::string_view id) {
    return absl::StrJoin(wanted, " or ", [&](std::string* out, const std::string& prefix) {
      absl::StrAppend(out, prefix, id);
    });
  };
  return absl::StrCat("'", name, "' does not say its kind; allowed is ", forms("<id>"),
                      name.empty() ? "" : absl::StrCat(": ", forms(name)));
}

}  // namespace

CLI::Validator VolumeName() {
  return {[](const std::string& name) -> std::string {
            if (absl::StartsWith(name, "scans/"))
              return "'" + name + "' is a scan; its volumes: octavo volume list --parent " + name;
            if (absl::StartsWith(name, "jobs/"))
              return "'" + name + "' is a job; its volumes: octavo job show " + name;
            if (absl::StartsWith(name, "buffers/"))
              return "'" + name +
                     "' is a buffer; allowed is a volume, volumes/... (octavo volume list); octavo "
                     "buffer show " +
                     name + " shows this one";
            return ProblemOfBareName(name, {"volumes/"});
          },
          ""};
}

namespace {

struct Kind {
  const char* prefix;
  const char* called;
  const char* allowed;
  const char* command;  // that shows it
};
constexpr Kind kKinds[] = {
    {"scans/", "a scan", "a scan, scans/... (octavo scan list)", "octavo scan show"},
    {"jobs/", "a job", "a job, jobs/... (octavo job list)", "octavo job show"},
    {"volumes/", "a volume", "a volume, volumes/... (octavo volume list)", "octavo volume show"},
    {"operations/", "an operation", "an operation, operations/... (octavo operation list)",
     "octavo operation get"},
    {"buffers/", "a buffer", "a buffer, buffers/... (octavo buffer list)", "octavo buffer show"}};

CLI::Validator NameOfKind(const std::vector<std::string>& wanted) {
  return {[wanted](const std::string& name) -> std::string {
            std::string allowed;
            const Kind* other = nullptr;
            for (const Kind& kind : kKinds) {
              const bool is_wanted =
                  std::find(wanted.begin(), wanted.end(), kind.prefix) != wanted.end();
              if (is_wanted)
                absl::StrAppend(&allowed, allowed.empty() ? "" : ", and ", kind.allowed);
              if (!is_wanted && absl::StartsWith(name, kind.prefix)) other = &kind;
            }
            if (other == nullptr) return ProblemOfBareName(name, wanted);
            return absl::StrCat("'", name, "' is ", other->called, "; allowed is ", allowed, "; ",
                                other->command, " ", name, " shows this one");
          },
          ""};
}

}  // namespace

CLI::Validator ScanName() { return NameOfKind({"scans/"}); }
CLI::Validator JobName() { return NameOfKind({"jobs/"}); }
CLI::Validator ScanOrJobName() { return NameOfKind({"scans/", "jobs/"}); }
CLI::Validator OperationName() { return NameOfKind({"operations/"}); }
CLI::Validator BufferName() { return NameOfKind({"buffers/"}); }
CLI::Validator BufferOrVolumeName() { return NameOfKind({"buffers/", "volumes/"}); }
CLI::Validator GrantableName() { return NameOfKind({"scans/", "jobs/", "volumes/", "buffers/"}); }

namespace {

// Begins a verb about a volume, with `call(stub, context, request, &answer)`, and follows its
// operation to the end. Returns the operation if it has succeeded; prints why if it has not.
template <class Response, class Request, class Call>
std::optional<v1::Operation> Run(Session& session, Request request, const char* doing,
                                 InterruptibleWork* work, Call call) {
  request.mutable_wait();  // answer as soon as it has begun
  Response answer;
  const auto context = session.Context();
  const grpc::Status begun =
      (v1::VolumeService::NewStub(session.channel()).get()->*call)(context.get(), request, &answer);
  if (work != nullptr) work->Begun(answer.operation().name());
  if (!CheckVolume(session, request.name(), begun)) return std::nullopt;
  const auto ended = FollowOperation(session, answer.operation(), doing);
  if (work == nullptr || !work->interrupted()) return ended;
  if (ended.has_value()) {
    std::cerr << "octavo: it was too late to cancel: " << doing << " has succeeded\n";
  } else {
    session.exit_code = kInterrupted;
  }
  return ended;
}

// Where a volume is committed if nobody says it: untitled scans must not meet in one name.
std::string UsualName(Session& session, const std::string& name) {
  v1::GetVolumeRequest request;
  request.set_name(name);
  v1::GetVolumeResponse answer;
  const bool known = v1::VolumeService::NewStub(session.channel())
                         ->GetVolume(session.Context().get(), request, &answer)
                         .ok();  // else the commit says why
  return known && answer.volume().title().empty() ? "{scan}_{index:05}" : "{title}_{index:05}";
}

}  // namespace

void PrintVolumeNow(Session& session, const std::string& name) {
  v1::GetVolumeRequest request;
  request.set_name(name);
  v1::GetVolumeResponse answer;
  if (Check(session, v1::VolumeService::NewStub(session.channel())
                         ->GetVolume(session.Context().get(), request, &answer)))
    PrintVolume(session, answer.volume());
}

void CommitVolume(Session& session, v1::CommitVolumeRequest request, InterruptibleWork* work) {
  WarnOfMissing(session, request.name());
  const auto ended = Run<v1::CommitVolumeResponse>(session, std::move(request), "committing", work,
                                                   &v1::VolumeService::Stub::CommitVolume);
  if (ended.has_value() && !session.json) PrintCommitted(ended->commit());
}

void PrintCommitted(const v1::CommitResult& result) {
  std::cout << result.path() << "  " << Bytes(static_cast<double>(result.raw_bytes())) << " as "
            << Bytes(static_cast<double>(result.bytes())) << " in "
            << Seconds(SecondsOf(result.elapsed())) << "  " << result.checksum() << "\n";
}

void AddVolumeCommands(CLI::App& app, Session& session) {
  auto* volume =
      app.add_subcommand("volume", "look at, read, keep or drop volumes")->require_subcommand(1);
  auto name = std::make_shared<std::string>();
  auto lease = std::make_shared<std::string>();
  const auto add_lease = [lease](CLI::App* command) {
    command->add_option("--lease", *lease,
                        "token of your own lease of the volume; others' leases are in the way");
    return command;
  };

  auto* list = volume->add_subcommand(
      "list", "volumes that are held, on a device, in host memory or on disk, oldest first");
  auto parent = std::make_shared<std::string>();
  auto all = std::make_shared<bool>(false);
  list->add_option("--parent", *parent, "only of this scans/... or jobs/...")
      ->check(ScanOrJobName());
  list->add_flag("--all", *all, "also those that have left memory");
  const ListFlags list_flags;
  list_flags.AddTo(list, "labels.eye = OD AND bytes > 1e6", "bytes desc, name");
  list->callback([&session, parent, all, list_flags] {
    auto stub = v1::VolumeService::NewStub(session.channel());
    v1::ListVolumesRequest request;
    request.set_parent(*parent);
    for (int state = 1; *all && v1::VolumeState_IsValid(state); ++state)
      request.add_states(static_cast<v1::VolumeState>(state));
    list_flags.EachPage<v1::ListVolumesResponse>(
        session, request, "",
        [&](auto* context, const auto& page, auto* answer) {
          return stub->ListVolumes(context, page, answer);
        },
        [&](const auto& answer) {
          for (const auto& one : answer.volumes()) PrintVolume(session, one);
        });
  });

  auto* watch = volume->add_subcommand(
      "watch", "volumes in device memory, then each change of one, until interrupted");
  auto filter = std::make_shared<std::string>();
  auto changes = std::make_shared<bool>(false);
  watch->add_option("--filter", *filter, "only those that match, such as 'parent = scans/…'");
  watch->add_flag("--changes", *changes, "not the volumes that there are now");
  watch->callback([&session, filter, changes] { WatchVolumes(session, *filter, *changes); });

  const auto unary = [&](const char* verb, const char* help, auto response, auto call) {
    auto* command = volume->add_subcommand(verb, help);
    command->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
    command->callback([&session, name, call] {
      decltype(response) answer;
      if (!CheckVolume(
              session, *name,
              call(*v1::VolumeService::NewStub(session.channel()), session, *name, &answer)))
        return;
      PrintVolume(session, answer.volume());
      if constexpr (std::is_same_v<decltype(response), v1::GetVolumeResponse>)
        PrintDetails(session, answer.volume());
    });
    return command;
  };
  unary("show", "one volume", v1::GetVolumeResponse(),
        [](v1::VolumeService::Stub& stub, Session& s, const std::string& which,
           v1::GetVolumeResponse* answer) {
          v1::GetVolumeRequest request;
          request.set_name(which);
          return stub.GetVolume(s.Context().get(), request, answer);
        });
  const auto discard = [lease](v1::VolumeService::Stub& stub, Session& s, const std::string& which,
                               v1::DiscardVolumeResponse* answer) {
    v1::DiscardVolumeRequest request;
    request.set_name(which);
    request.set_lease_token(*lease);
    return stub.DiscardVolume(s.Context().get(), request, answer);
  };
  add_lease(
      unary("discard", "free its memory; the data is gone", v1::DiscardVolumeResponse(), discard));
  auto* restore = volume->add_subcommand("restore", "move its bytes back to its device");
  restore->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  restore->callback([&session, name] {
    v1::RestoreVolumeRequest request;
    request.set_name(*name);
    InterruptibleWork work(session);
    if (Run<v1::RestoreVolumeResponse>(session, request, "restoring", &work,
                                       &v1::VolumeService::Stub::RestoreVolume)
            .has_value())
      PrintVolumeNow(session, *name);
  });
  unary("hold", "mark a volume: a LIVE scan does not overwrite it, its time to live ends",
        v1::HoldVolumeResponse(),
        [](v1::VolumeService::Stub& stub, Session& s, const std::string& which,
           v1::HoldVolumeResponse* answer) {
          v1::HoldVolumeRequest request;
          request.set_name(which);
          return stub.HoldVolume(s.Context().get(), request, answer);
        });
  add_lease(unary("release", "take the mark of `hold` back", v1::ReleaseVolumeResponse(),
                  [lease](v1::VolumeService::Stub& stub, Session& s, const std::string& which,
                          v1::ReleaseVolumeResponse* answer) {
                    v1::ReleaseVolumeRequest request;
                    request.set_name(which);
                    request.set_lease_token(*lease);
                    return stub.ReleaseVolume(s.Context().get(), request, answer);
                  }));
  auto* spill = add_lease(volume->add_subcommand(
      "spill", "move its bytes out of device memory; it stays held and can be read and committed"));
  auto tier = std::make_shared<std::string>("disk");
  spill->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  spill->add_option("--tier", *tier, "host | disk (default)")->check(OneOf({"host", "disk"}));
  spill->callback([&session, name, tier, lease] {
    v1::SpillVolumeRequest request;
    request.set_name(*name);
    request.set_lease_token(*lease);
    request.set_tier(*tier == "host" ? v1::TIER_HOST : v1::TIER_DISK);
    InterruptibleWork work(session);
    if (Run<v1::SpillVolumeResponse>(session, request, "spilling", &work,
                                     &v1::VolumeService::Stub::SpillVolume)
            .has_value())
      PrintVolumeNow(session, *name);
  });

  auto* read =
      volume->add_subcommand("read", "copy a volume, or a box of it, into a .npy file here");
  auto path = std::make_shared<std::string>("volume.npy");
  auto box = std::make_shared<std::vector<int64_t>>();
  read->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  read->add_option("-o,--output", *path, "a .npy file (default volume.npy)");
  read->add_option("--box", *box, "y,x,z,ny,nx,nz")->delimiter(',')->expected(6);
  auto downsample = std::make_shared<uint32_t>(1);
  auto mean = std::make_shared<bool>(false);
  auto window = std::make_shared<std::vector<float>>();
  read->add_option("--downsample", *downsample,
                   "a coarser picture: each sample stands for a cube of so many voxels along each "
                   "axis; a power of two up to 64");
  read->add_flag("--mean", *mean, "with --downsample: the mean of a cube instead of its maximum");
  read->add_option("--window", *window,
                   "lo,hi in stored units: samples become u8, lo is 0 and hi is 255")
      ->delimiter(',')
      ->expected(2);
  read->callback([&session, name, path, box, downsample, mean, window] {
    CheckNpyName("--output", *path);
    CheckWritable("--output", *path);
    v1::ReadVolumeRequest request;
    request.set_name(*name);
    for (size_t i = 0; i < box->size(); ++i)
      (i < 3 ? request.add_start((*box)[i]) : request.add_count((*box)[i]));
    request.set_downsample(*downsample);
    if (*mean) request.set_downsampling(v1::DOWNSAMPLING_MEAN);
    if (!window->empty()) {
      request.mutable_window()->set_lo((*window)[0]);
      request.mutable_window()->set_hi((*window)[1]);
    }
    Read(session, request, *path);
  });

  AddVolumePictureCommand(volume, session);
  AddVolumeImportCommand(volume, session);

  auto* derive = volume->add_subcommand(
      "derive", "make a new held volume of a held one; operations run in the order of this list");
  auto steps = std::make_shared<DeriveFlags>();
  derive->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  steps->AddTo(derive);
  const ArrayFlags array_flags(derive);
  derive->callback([&session, name, steps, array_flags] {
    v1::DeriveVolumeRequest request;
    request.set_name(*name);
    for (auto& operation : steps->Operations()) *request.add_operations() = std::move(operation);
    if (!array_flags.Fill(session, &request)) return;
    if (request.operations().empty()) {
      throw CLI::ValidationError("an operation",
                                 "is not given; allowed --angiography, --doppler, --cartesian, "
                                 "--crop, --resize, --mip, --mean, --min, --std, --slab");
    }
    InterruptibleWork work(session);
    const auto ended = Run<v1::DeriveVolumeResponse>(session, request, "deriving", &work,
                                                     &v1::VolumeService::Stub::DeriveVolume);
    if (ended.has_value()) PrintVolumeNow(session, ended->volumes(0));
  });

  auto* commit = add_lease(
      volume->add_subcommand("commit", "write it to the server's storage and free its memory"));
  auto flags = std::make_shared<FormatFlags>();
  auto destination = std::make_shared<std::string>();
  auto request_id = std::make_shared<std::string>();
  commit->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  commit->add_option("destination", *destination,
                     "path below the server's storage root, with {scan} {index:05} {title} {date}; "
                     "its ending tells the format, else --format. Default {title}_{index:05}, and "
                     "{scan}_{index:05} without a title");
  flags->AddTo(commit);
  commit->add_option("--request-id", *request_id,
                     "a retry with the same id finds the first commit");
  commit->callback([&session, name, flags, destination, request_id, lease] {
    if (absl::StartsWith(*destination, "volumes/")) {
      throw CLI::ValidationError(
          "volume", absl::StrCat("is '", *name, "', and the destination is '", *destination,
                                 "'; the volume comes first, then the destination"));
    }
    v1::CommitVolumeRequest message;
    message.set_name(*name);
    message.set_lease_token(*lease);
    message.set_request_id(*request_id);
    flags->Fill("destination", destination->empty() ? UsualName(session, *name) : *destination,
                message.mutable_options());
    InterruptibleWork work(session);
    CommitVolume(session, message, &work);
  });
}

}  // namespace octavo::cli
