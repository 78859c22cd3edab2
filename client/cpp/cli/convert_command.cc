#include <csignal>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/format_flags.h"
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

/// The flags about a source that no commit of Octavo wrote.
struct SourceFlags {
  std::string format, raw_type, dataset, dtype, order;
  std::vector<int64_t> raw_shape;
  std::vector<std::string> axes, select, spacing_um;
  int64_t raw_offset = 0;
  bool raw_big_endian = false, raw_fortran = false, raw_trailing = false, unknown_spacing = false,
       scaled = false;
  std::optional<int> image, from_level;

  void AddTo(CLI::App* app) {
    app->add_option("--from-format", format,
                    absl::StrCat("the source's format, if its content does not tell: ",
                                 storage::kInputFormatNames));
    app->add_option("--raw-shape", raw_shape,
                    "raw numbers: extents, slowest first (with --raw-fortran fastest first)")
        ->delimiter(',');
    app->add_option("--raw-type", raw_type,
                    absl::StrCat("raw numbers: ", storage::kElementTypeNames));
    app->add_option("--raw-offset", raw_offset, "raw numbers: bytes before the first one");
    app->add_flag("--raw-big-endian", raw_big_endian, "raw numbers: most significant byte first");
    app->add_flag("--raw-fortran", raw_fortran, "raw numbers: the first axis is the fastest");
    app->add_flag("--raw-trailing", raw_trailing, "raw numbers: leave out what follows them");
    app->add_option("--dataset,--array", dataset,
                    "HDF5: path of the dataset; MATLAB: name of the variable; Zarr: path of an "
                    "array or a group below the folder");
    app->add_option("--image", image,
                    "OME-TIFF and OME-Zarr with several images: which one, from 0");
    app->add_option("--from-level", from_level,
                    "OME-Zarr: level of the pyramid that is read; default 0, the full resolution");
    app->add_option("--axes", axes,
                    "names of the source's axes, slowest first: z,y,x; others than x, y, z need "
                    "--select")
        ->delimiter(',');
    app->add_option("--select", select, "index along another axis: c=0")->delimiter(',');
    app->add_option("--spacing-um", spacing_um,
                    "micrometres from sample to sample, instead of the source's: x=6,y=12,z=3.5")
        ->delimiter(',');
    app->add_flag("--unknown-spacing", unknown_spacing,
                  "go on where neither the source nor --spacing-um tells a spacing");
    app->add_option("--order", order, "axes of the result, slowest first: yxz");
    app->add_option("--dtype", dtype, "type of the result: u8, i8, u16, i16, f16, f32, f64, c64");
    app->add_flag("--scaled", scaled, "NIfTI: values scaled by scl_slope and scl_inter");
  }

  absl::StatusOr<storage::ConvertSource> Make() const {
    storage::ConvertSource out;
    if (!format.empty()) {
      out.input.format = storage::InputFormatNamed(format);
      if (!out.input.format.has_value())
        return InvalidField("--from-format", absl::StrCat("is '", format, "'; allowed ",
                                                          storage::kInputFormatNames));
    }
    out.input.dataset = dataset;
    out.input.image = image;
    out.input.level = from_level;
    if (!raw_shape.empty() || !raw_type.empty()) {
      const auto type = storage::ElementTypeNamed(raw_type);
      if (!type.has_value())
        return InvalidField("--raw-type", absl::StrCat("is '", raw_type, "'; allowed ",
                                                       storage::kElementTypeNames));
      out.input.raw = storage::VolumeInputOptions::Raw{.shape = raw_shape,
                                                       .type = *type,
                                                       .big_endian = raw_big_endian,
                                                       .offset_bytes = raw_offset,
                                                       .fortran = raw_fortran,
                                                       .allow_trailing = raw_trailing};
    }
    out.volume.axes = axes;
    out.volume.order = order;
    out.volume.allow_unknown_spacing = unknown_spacing;
    if (scaled) out.volume.values = storage::InputVolumeOptions::Values::kScaled;
    OCTAVO_RETURN_IF_ERROR(Pairs("--select", select, &out.volume.select));
    OCTAVO_RETURN_IF_ERROR(Pairs("--spacing-um", spacing_um, &out.volume.spacing_um));
    if (!dtype.empty()) {
      for (int value = 1; Info(static_cast<DType>(value)).bytes > 0; ++value) {
        if (dtype == Info(static_cast<DType>(value)).name)
          out.volume.dtype = static_cast<DType>(value);
      }
      if (!out.volume.dtype.has_value())
        return InvalidField("--dtype", absl::StrCat("is '", dtype,
                                                    "'; allowed u8, i8, u16, i16, f16, f32, f64, "
                                                    "c64"));
    }
    return out;
  }

 private:
  /// "x=6": a name and a number.
  template <class T>
  static absl::Status Pairs(const char* flag, const std::vector<std::string>& given,
                            std::map<std::string, T>* out) {
    for (const std::string& pair : given) {
      const size_t at = pair.find('=');
      std::istringstream text(at == std::string::npos ? "" : pair.substr(at + 1));
      T value{};
      if (!(text >> value) || !text.eof())
        return InvalidField(flag, absl::StrCat("is '", pair, "'; allowed are name=number"));
      (*out)[pair.substr(0, at)] = value;
    }
    return absl::OkStatus();
  }
};

void Convert(Session& session, const std::string& source, const std::string& destination,
             const FormatFlags& flags, const SourceFlags& from) {
  auto options = OptionsOf(flags, destination);
  const auto opened = from.Make();
  if (!opened.ok()) options = opened.status();
  const Interruptible interruptible;
  absl::StatusOr<storage::CommitOutcome> outcome;
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
      std::cerr << "octavo: " << outcome.status().message()
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
                                 {"checksum", outcome->checksum}})
                     .dump()
              << "\n";
    return;
  }
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
