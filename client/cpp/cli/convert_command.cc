#include <csignal>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/format_flags.h"
#include "client/cpp/cli/source_flags.h"
#include "client/cpp/cli/terminal.h"
#include "gpu/base/status.h"
#include "server/storage/commit/convert.h"

namespace octavo::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

/// Makes SIGINT and SIGTERM end the conversion, so that it removes its unfinished files.
class Interruptible {
 public:
  Interruptible()
      : before_int_(std::signal(SIGINT, Note)), before_term_(std::signal(SIGTERM, Note)) {}
  ~Interruptible() {
    std::signal(SIGINT, before_int_);
    std::signal(SIGTERM, before_term_);
  }

 private:
  static void Note(int) { g_interrupted = 1; }
  void (*before_int_)(int);
  void (*before_term_)(int);
};

absl::StatusOr<storage::WriterOptions> OptionsOf(const FormatFlags& flags,
                                                 const std::string& destination) {
  v1::CommitOptions message;
  flags.Fill("destination", destination, &message);
  storage::WriterOptions out;
  out.format = static_cast<storage::Format>(message.format());
  if (message.format() == v1::FORMAT_UNSPECIFIED) {
    OCTAVO_ASSIGN_OR_RETURN(out.format, storage::FormatOfPath(destination));
  }
  for (int d = 0; d < message.chunk_size(); ++d) out.chunk[d] = message.chunk(d);
  for (int d = 0; d < message.shard_size(); ++d) out.shard[d] = message.shard(d);
  if (message.zstd_level() != 0) out.zstd_level = message.zstd_level();
  out.compress = message.codec() != v1::CODEC_NONE;
  if (out.compress) out.codec = static_cast<storage::Codec>(message.codec());
  out.level = message.level();
  out.shuffle = static_cast<storage::Shuffle>(message.shuffle());
  out.pyramid_levels = static_cast<int>(std::min(message.pyramid_levels(), 1000u));
  out.nifti_version = static_cast<int>(std::min(message.nifti_version(), 1000u));
  out.tiff_plane = static_cast<storage::TiffPlane>(message.tiff_plane());
  out.tiff_stack = message.tiff_stack();
  out.pyramid_um.assign(message.pyramid_um().begin(), message.pyramid_um().end());
  out.ngff = static_cast<storage::NgffVersion>(message.ngff());
  return out;
}

/// How the source is read, as the flags say.
absl::StatusOr<storage::ConvertSource> SourceOf(const SourceFlags& flags) {
  OCTAVO_ASSIGN_OR_RETURN(const v1::ImportJob message, flags.Make());
  storage::ConvertSource out;
  if (message.format() != v1::INPUT_FORMAT_UNSPECIFIED)
    out.input.format = static_cast<storage::InputFormat>(message.format());
  out.input.dataset = message.dataset();
  if (message.has_image()) out.input.image = static_cast<int>(message.image());
  if (message.has_level()) out.input.level = static_cast<int>(message.level());
  if (message.has_raw()) {
    const v1::RawNumbers& raw = message.raw();
    out.input.raw =
        storage::RawLayout{.shape = {raw.shape().begin(), raw.shape().end()},
                           .type = storage::ElementTypeNamed(TypeWord(raw.dtype())).value(),
                           .big_endian = raw.big_endian(),
                           .offset_bytes = raw.offset_bytes(),
                           .fortran = raw.fortran(),
                           .allow_trailing = raw.allow_trailing()};
  }
  out.volume.axes = {message.axes().begin(), message.axes().end()};
  out.volume.select.insert(message.select().begin(), message.select().end());
  out.volume.spacing_um.insert(message.spacing_um().begin(), message.spacing_um().end());
  out.volume.allow_unknown_spacing = message.allow_unknown_spacing();
  out.volume.order = message.order();
  if (message.dtype() != v1::DTYPE_UNSPECIFIED)
    out.volume.dtype = static_cast<DType>(message.dtype());
  if (message.scaled()) out.volume.values = storage::InputVolumeOptions::Values::kScaled;
  return out;
}

void Convert(Session& session, const std::string& source, const std::string& destination,
             const FormatFlags& flags, const SourceFlags& from) {
  auto options = OptionsOf(flags, destination);
  const auto opened = SourceOf(from);
  if (!opened.ok()) options = opened.status();
  const Interruptible interruptible;
  absl::StatusOr<storage::ConvertOutcome> outcome;
  {
    ProgressBar bar("converting");
    outcome = options.ok()
                  ? storage::Convert(
                        source, destination, *options,
                        [&](double fraction, int64_t disk_bytes) {
                          if (!session.json)
                            bar.Update(fraction, Bytes(static_cast<double>(disk_bytes)), 0);
                          return g_interrupted == 0;
                        },
                        *opened)
                  : options.status();
  }
  if (!outcome.ok()) {
    const ErrorInfo info = InfoOf(outcome.status());
    session.exit_code = kFailed;
    if (session.json) {
      std::cout << nlohmann::json({{"code", static_cast<int>(outcome.status().code())},
                                   {"message", std::string(outcome.status().message())},
                                   {"reason", Name(info.reason)},
                                   {"field", info.field}})
                       .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                << "\n";
    } else {
      std::cerr << "octavo: " << Printable(std::string(outcome.status().message()))
                << (info.reason == Reason::kNone ? "" : absl::StrCat(" [", Name(info.reason), "]"))
                << "\n";
    }
    return;
  }
  if (session.json) {
    std::cout << nlohmann::json({{"path", outcome->path},
                                 {"format", storage::FormatName(outcome->format)},
                                 {"raw_bytes", outcome->raw_bytes},
                                 {"bytes", outcome->disk_bytes},
                                 {"seconds", outcome->seconds},
                                 {"checksum", outcome->checksum},
                                 {"warnings", outcome->warnings}})
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
    return;
  }
  for (const std::string& warning : outcome->warnings)
    std::cerr << "octavo: warning: " << Printable(warning) << "\n";
  std::cout << outcome->path << "  " << Bytes(static_cast<double>(outcome->raw_bytes)) << " as "
            << Bytes(static_cast<double>(outcome->disk_bytes)) << " in "
            << Seconds(outcome->seconds) << "  " << outcome->checksum << "\n";
}

}  // namespace

std::string ConvertTo(const std::string& source, const std::string& destination) {
  const auto options = OptionsOf({}, destination);
  if (!options.ok()) return std::string(options.status().message());
  return std::string(
      storage::Convert(source, destination, *options, [](double, int64_t) { return true; })
          .status()
          .message());
}

void AddConvertCommand(CLI::App& app, Session& session) {
  auto* convert = app.add_subcommand(
      "convert",
      "write a volume in another format, here, without a server: one that a commit wrote, or a "
      "file of another program");
  auto source = std::make_shared<std::string>();
  auto destination = std::make_shared<std::string>();
  auto flags = std::make_shared<FormatFlags>();
  convert
      ->add_option(
          "source", *source,
          "what a commit wrote, in any format; or OME-Zarr, Zarr, .npy, TIFF (OME, ImageJ, a "
          "folder), NIfTI, NRRD, HDF5, MATLAB, a folder of linumpy, raw numbers")
      ->required();
  convert
      ->add_option("destination", *destination,
                   "the new file; its ending tells the format unless --format does")
      ->required();
  flags->AddTo(convert);
  auto from = std::make_shared<SourceFlags>();
  from->AddTo(convert);
  convert->callback([&session, source, destination, flags, from] {
    Convert(session, *source, *destination, *flags, *from);
  });
}

}  // namespace octavo::cli
