// `octavo volume png`: a picture of a held volume in a file.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/picture_flags.h"
#include "client/cpp/cli/projection_text.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

struct Shown {
  const char* flag;
  v1::Rendering rendering;
  const char* help;
};
constexpr Shown kShown[] = {
    {"--plane", v1::RENDERING_PLANE, "AXIS or AXIS=INDEX: one plane, z=123 (without: the middle)"},
    {"--mip", v1::RENDERING_MAX, "AXIS or AXIS=BEGIN:END: the maximum along an axis, or in a slab"},
    {"--mean", v1::RENDERING_MEAN, "the same: the mean (AIP)"},
    {"--min", v1::RENDERING_MIN, "the same: the minimum"},
    {"--std", v1::RENDERING_STD, "the same: the standard deviation"},
    {"--slab", v1::RENDERING_MAX, "AXIS=BEGIN:END: as --mip"}};

// "z", "z=123", "z=100:140".
void SetShown(const Shown& shown, const std::string& text, v1::RenderVolumeRequest* request) {
  request->set_rendering(shown.rendering);
  if (shown.rendering == v1::RENDERING_PLANE) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    request->set_axis(AxisOf(shown.flag, parts.first));
    if (absl::StrContains(text, '=')) request->set_index(IndexOf(shown.flag, parts.second));
    return;
  }
  const ProjectionText projection =
      ProjectionOf(shown.flag, text, /*needs_range=*/shown.flag == std::string("--slab"));
  request->set_axis(projection.axis);
  request->set_begin(projection.begin);
  if (projection.end > 0) request->set_end(projection.end);
}

// UNSPECIFIED: pictures do not end so.
v1::Encoding EncodingOfEnding(const std::string& name) {
  if (absl::EndsWith(name, ".png")) return v1::ENCODING_PNG;
  if (absl::EndsWith(name, ".jpg") || absl::EndsWith(name, ".jpeg")) return v1::ENCODING_JPEG;
  if (absl::EndsWith(name, ".webp")) return v1::ENCODING_WEBP;
  return v1::ENCODING_UNSPECIFIED;
}

v1::Encoding EncodingOf(const std::string& format, const std::string& path) {
  const v1::Encoding of_path = EncodingOfEnding(absl::AsciiStrToLower(path));
  const v1::Encoding asked = format.empty() ? of_path : EncodingOfEnding("." + format);
  if (asked == v1::ENCODING_UNSPECIFIED) {
    throw CLI::ValidationError("--output",
                               absl::StrCat("is '", path,
                                            "'; its ending tells the format: allowed .png, .jpg, "
                                            ".jpeg, .webp, or any with --format"));
  }
  if (of_path != v1::ENCODING_UNSPECIFIED && of_path != asked) {
    throw CLI::ValidationError(
        "--format", absl::StrCat("is ", format, ", and '", path, "' ends as files of ",
                                 absl::AsciiStrToLower(ShortName(of_path)),
                                 " do; change one of them, or leave --format out: the ending "
                                 "decides"));
  }
  return asked;
}

// "z plane 123 (615 um)", "max over z 100:140 (500 ... 700 um)"; without um where nobody gave the
// distance of two samples, or where they are no places.
std::string What(const v1::RenderedPicture& picture) {
  const std::string axis = absl::AsciiStrToLower(ShortName(picture.axis()));
  int position = 0;
  for (int d = 0; d < picture.volume().axes_size(); ++d) {
    if (picture.volume().axes(d) == axis) position = d;
  }
  const int64_t begin = picture.start(position), end = begin + picture.count(position);
  const bool in_space = position < picture.volume().spacing_units_size() &&
                        picture.volume().spacing_units(position) == v1::SPACING_UNIT_MICROMETRE;
  if (picture.rendering() == v1::RENDERING_PLANE) {
    return absl::StrCat(axis, " plane ", begin,
                        in_space ? absl::StrCat(" (", picture.begin_um(), " um)") : "");
  }
  return absl::StrCat(
      absl::AsciiStrToLower(ShortName(picture.rendering())), " over ", axis, " ", begin, ":", end,
      in_space ? absl::StrCat(" (", picture.begin_um(), " ... ", picture.end_um(), " um)") : "");
}

void Render(Session& session, const v1::RenderVolumeRequest& request, const std::string& path) {
  grpc::ClientContext context;  // as long as it takes
  auto reader = v1::VolumeService::NewStub(session.channel())->RenderVolume(&context, request);
  v1::RenderVolumeResponse part;
  v1::RenderedPicture picture;
  std::string data;
  uint64_t total = 0;
  while (reader->Read(&part)) {
    if (part.has_picture()) {
      picture = part.picture();
      total = part.total_bytes();
    }
    data += part.data();
  }
  if (!CheckVolume(session, request.name(), reader->Finish())) return;
  std::ofstream file(path, std::ios::binary);
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file || data.size() != total) {
    std::cerr << "octavo: could not write " << path << "\n";
    session.exit_code = kFailed;
    return;
  }
  for (const std::string& warning : picture.warnings())
    std::cerr << "octavo: warning: " << warning << "\n";
  if (session.json) return PrintJson(picture);
  std::cout << path << "  " << picture.shape(1) << " x " << picture.shape(0) << " pixels  "
            << Bytes(static_cast<double>(data.size())) << "  " << What(picture) << "  "
            << picture.values().lo() << " ... " << picture.values().hi()
            << (picture.unit().empty() ? "" : " ") << picture.unit() << "\n";
}

}  // namespace

void AddVolumePictureCommand(CLI::App* volume, Session& session) {
  auto* command = volume->add_subcommand(
      "png", "a picture of a held volume in a PNG, JPEG or WebP file here, depth downwards");
  auto name = std::make_shared<std::string>();
  auto path = std::make_shared<std::string>("volume.png");
  auto format = std::make_shared<std::string>();
  auto shown = std::make_shared<std::vector<std::string>>(std::size(kShown));
  auto box = std::make_shared<std::vector<int64_t>>();
  auto flags = std::make_shared<PictureFlags>();
  command->add_option("volume", *name, "volumes/...")->required()->check(VolumeName());
  command->add_option("-o,--output", *path,
                      "the file (default volume.png); its ending tells the format");
  command->add_option("--format", *format, "png | jpeg | webp")
      ->check(OneOf({"png", "jpeg", "webp"}));
  std::vector<CLI::Option*> ways;
  for (size_t i = 0; i < std::size(kShown); ++i) {
    CLI::Option* const way = command->add_option(kShown[i].flag, (*shown)[i], kShown[i].help);
    for (CLI::Option* const other : ways) way->excludes(other);
    ways.push_back(way);
  }
  command->add_option("--box", *box, "y,x,z,ny,nx,nz: only this box")->delimiter(',')->expected(6);
  flags->AddContrastTo(command);
  flags->AddLookTo(command);
  command->callback([&session, name, path, format, shown, box, flags] {
    v1::RenderVolumeRequest request;
    request.set_name(*name);
    for (size_t i = 0; i < std::size(kShown); ++i) {
      if (!(*shown)[i].empty()) SetShown(kShown[i], (*shown)[i], &request);
    }
    for (size_t i = 0; i < box->size(); ++i)
      (i < 3 ? request.add_start((*box)[i]) : request.add_count((*box)[i]));
    request.set_encoding(EncodingOf(*format, *path));
    flags->Check();
    flags->Fill(request.mutable_image());
    CheckWritable("--output", *path);
    Render(session, request, *path);
  });
}

}  // namespace octavo::cli
