// Reads volume files as OpenVolumeInput does, for tests against other programs. Each line of the
// standard input is one request, [PATH, OPTIONS] in JSON. Each gets one line of JSON: the
// description, or the error. One process answers many requests, because to load its libraries takes
// longer than most of them.
// OPTIONS: format, dataset, image, level, roots, descriptor (open it here, and hand over the
// descriptor), raw {shape, type, big_endian, offset, fortran, allow_trailing}, box {start, count},
// out (a file for the elements of the box, or of all), volume {axes, select, spacing_um, unknown,
// order, dtype, scaled} (writes the volume instead).

#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/base/status.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/volume_input.h"

namespace {

using nlohmann::json;
using namespace octavo::storage;  // NOLINT(google-build-using-namespace): a program of one file

json Described(const VolumeInputInfo& info) {
  json axes = json::array();
  for (const InputAxis& axis : info.axes) {
    axes.push_back({{"name", axis.name},
                    {"extent", axis.extent},
                    {"spacing_um", axis.spacing_um.has_value() ? json(*axis.spacing_um) : json()},
                    {"stored", axis.spacing_as_stored},
                    {"place", axis.spacing_place}});
  }
  json out = {{"format", Name(info.format)},
              {"kind", info.kind},
              {"type", info.type.Name()},
              {"axes", axes},
              {"file_order", info.file_order},
              {"chunk", info.chunk},
              {"sequential", info.sequential},
              {"read_memory_bytes", info.read_memory_bytes},
              {"value_unit", info.value_unit},
              {"labels", info.labels},
              {"notes", info.notes}};
  if (info.slope_intercept.has_value())
    out["slope_intercept"] = {info.slope_intercept->first, info.slope_intercept->second};
  if (info.octavo.has_value()) out["octavo"] = MetaJson(*info.octavo);
  return out;
}

absl::Status Write(const std::string& path, const std::vector<char>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file.good() ? absl::OkStatus() : absl::InternalError("cannot write " + path);
}

octavo::DType DtypeNamed(const std::string& name) {
  for (int value = 1; value <= 8; ++value) {
    if (octavo::Info(static_cast<octavo::DType>(value)).name == name)
      return static_cast<octavo::DType>(value);
  }
  return static_cast<octavo::DType>(99);
}

InputVolumeOptions VolumeOptions(const json& given) {
  InputVolumeOptions out;
  out.axes = given.value("axes", out.axes);
  out.select = given.value("select", out.select);
  out.spacing_um = given.value("spacing_um", out.spacing_um);
  out.allow_unknown_spacing = given.value("unknown", false);
  out.order = given.value("order", "");
  if (given.contains("dtype")) out.dtype = DtypeNamed(given["dtype"]);
  if (given.value("scaled", false)) out.values = InputVolumeOptions::Values::kScaled;
  out.start = given.value("start", out.start);
  out.count = given.value("count", out.count);
  return out;
}

absl::Status Run(const std::string& path, const json& given, json* told) {
  VolumeInputOptions options;
  if (given.contains("format")) options.format = InputFormatNamed(given["format"]);
  options.dataset = given.value("dataset", "");
  if (given.contains("image")) options.image = given["image"].get<int>();
  if (given.contains("level")) options.level = given["level"].get<int>();
  options.roots = given.value("roots", options.roots);
  options.most_chunk_bytes = given.value("most_chunk_bytes", options.most_chunk_bytes);
  if (given.contains("raw")) {
    const json& raw = given["raw"];
    options.raw = RawLayout{.shape = raw["shape"].get<std::vector<int64_t>>(),
                            .type = *ElementTypeNamed(raw["type"].get<std::string>()),
                            .big_endian = raw.value("big_endian", false),
                            .offset_bytes = raw.value("offset", int64_t{0}),
                            .fortran = raw.value("fortran", false),
                            .allow_trailing = raw.value("allow_trailing", false)};
  }
  absl::StatusOr<std::unique_ptr<VolumeInput>> input;
  if (given.value("descriptor", false)) {
    input = OpenVolumeInput(octavo::UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), "handed",
                            options);
  } else {
    input = OpenVolumeInput(path, options);
  }
  OCTAVO_RETURN_IF_ERROR(input.status());
  *told = Described((*input)->info());
  OCTAVO_RETURN_IF_ERROR((*input)->Verify());
  const std::string out = given.value("out", "");
  if (given.contains("volume")) {
    OCTAVO_ASSIGN_OR_RETURN(const auto volume,
                            InputVolume::Make(*std::move(input), VolumeOptions(given["volume"])));
    const VolumeMeta& meta = volume->meta();
    (*told)["volume"] = MetaJson(meta);
    std::vector<char> bytes(static_cast<size_t>(meta.shape[0] * meta.shape[1] * meta.shape[2] *
                                                octavo::SizeOf(meta.dtype)));
    const int64_t plane = std::ssize(bytes) / meta.shape[0];
    const int64_t step = given.value("step", meta.shape[0]);
    for (int64_t at = 0; at < meta.shape[0]; at += step)
      OCTAVO_RETURN_IF_ERROR(
          volume->Read(at, std::min(step, meta.shape[0] - at), bytes.data() + at * plane));
    return out.empty() ? absl::OkStatus() : Write(out, bytes);
  }
  if (out.empty()) return absl::OkStatus();
  octavo::base::ArrayBox box{.start = std::vector<int64_t>((*input)->info().axes.size(), 0),
                             .count = (*input)->info().shape()};
  if (given.contains("box")) {
    box.start = given["box"]["start"].get<std::vector<int64_t>>();
    box.count = given["box"]["count"].get<std::vector<int64_t>>();
  }
  int64_t elements = 1;
  for (const int64_t count : box.count) elements *= count;
  std::vector<char> bytes(static_cast<size_t>(elements * (*input)->info().type.bytes));
  OCTAVO_RETURN_IF_ERROR((*input)->Read(box, absl::MakeSpan(bytes)));
  return Write(out, bytes);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line);
    json told;
    const absl::Status status = Run(request[0], request[1], &told);
    if (!status.ok()) {
      const octavo::ErrorInfo info = octavo::InfoOf(status);
      told = {{"error", std::string(status.message())},
              {"code", static_cast<int>(status.code())},
              {"reason", octavo::Name(info.reason)},
              {"field", info.field}};
    }
    std::cout << told.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
