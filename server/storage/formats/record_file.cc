#include "server/storage/formats/record_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/formats/file_kind.h"
#include "server/storage/formats/npy_header.h"
#include "server/storage/formats/record_doubts.h"

namespace octavo::storage {
namespace {

constexpr char kField[] = "replay.path";
constexpr int64_t kLeastSamples = 16, kMostSamples = 65536;

absl::Status CannotRead(const std::string& name, int error) {
  return WithInfo(absl::PermissionDeniedError(absl::StrCat(
                      kField, ": '", name, "' cannot be read: ", std::strerror(error))),
                  {.reason = Reason::kNoAccess, .field = kField, .numbers = {}});
}

// Reads up to `bytes` bytes from `offset`, as many as the file has.
absl::StatusOr<std::string> ReadFrom(const RecordFile& file, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(file.fd.get(), text.data() + done, text.size() - done,
                              offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return CannotRead(file.name, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

// Samples of a record from the last axes of an .npy file: [S], with channels [S, C] or [S x C];
// packed the bytes of a record.
absl::StatusOr<int64_t> SamplesOf(const NpyHeader& header, const AskedRecords& asked) {
  const int64_t last = header.shape.back(), channels = asked.channels;
  if (asked.packing != math::Packing::kNone) {
    if (header.dtype != DType::kU8)
      return InvalidField(
          "acquisition.raw_type",
          absl::StrCat("is packed; the file has ", Info(header.dtype).name, ", not bytes"));
    const int64_t samples = asked.samples != 0 ? asked.samples : last * 2 / 3 / channels;
    if (math::PackedBytes(asked.packing, samples * channels, 2) == last) return samples;
    return InvalidField("acquisition.samples_per_record",
                        absl::StrCat("is ", asked.samples, " in ", channels,
                                     " channels; the file's records have ", last, " bytes"));
  }
  if (channels == 1) return last;
  if (last == channels && header.shape.size() > 1) return header.shape[header.shape.size() - 2];
  if (last % channels == 0) return last / channels;
  return InvalidField("acquisition.channels",
                      absl::StrCat("is ", channels, "; the file's last axis is ", last));
}

// Copies the values of the header and checks them against the request and the file's size.
absl::Status TakeHeader(const AskedRecords& asked, int64_t size, RecordFile* file) {
  OCTAVO_ASSIGN_OR_RETURN(const std::string head,
                          ReadFrom(*file, 0, std::min<int64_t>(size, 65536 + 12)));
  OCTAVO_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(head, file->name));
  OCTAVO_ASSIGN_OR_RETURN(file->samples, SamplesOf(header, asked));
  file->raw_type = asked.packing != math::Packing::kNone ? DType::kU16 : header.dtype;
  file->data_offset = header.data_offset;
  const bool channels_apart = asked.packing == math::Packing::kNone && asked.channels > 1 &&
                              header.shape.back() == asked.channels && header.shape.size() > 1;
  file->shape.assign(header.shape.begin(), header.shape.end() - (channels_apart ? 2 : 1));
  if (asked.samples != 0 && asked.samples != file->samples) {
    return InvalidField("acquisition.samples_per_record",
                        absl::StrCat("is ", asked.samples, "; the file has ", file->samples));
  }
  if (asked.raw_type_given && asked.raw_type != file->raw_type) {
    return InvalidField("acquisition.raw_type",
                        absl::StrCat("is ", Info(asked.raw_type).name, "; the file has ",
                                     Info(file->raw_type).name));
  }
  int64_t elements = 1;
  for (const int64_t extent : header.shape) elements *= extent;
  const int64_t holds = size - file->data_offset, said = elements * SizeOf(header.dtype);
  if (holds < said && asked.allow_partial) file->missing_bytes = said - holds;
  if (holds == said || file->missing_bytes > 0) return absl::OkStatus();
  return InvalidField(
      kField, absl::StrCat(
                  "'", file->name, "' holds ", holds, " bytes of data; its header says ", said,
                  holds < said
                      ? " (replay.allow_partial takes the whole records of a file that was cut off)"
                      : ""));
}

// Refuses a file that holds something else than raw numbers, unless the client says where they lie.
absl::Status CheckKind(const AskedRecords& asked, const RecordFile& file) {
  if (asked.header_bytes != 0) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const std::string beginning, ReadFrom(file, 0, kKindBytes));
  const std::string kind = KindOfFile(beginning);
  if (kind.empty()) return absl::OkStatus();
  return InvalidField(
      kField, absl::StrCat("'", file.name, "' is ", kind,
                           "; allowed are .npy files and files of raw numbers. If such numbers lie "
                           "in it, give replay.header_bytes, the bytes before them"));
}

// Copies the request's values for a raw file, which has no header.
absl::Status TakeRequest(const AskedRecords& asked, int64_t size, RecordFile* file) {
  if (asked.samples < kLeastSamples || asked.samples > kMostSamples) {
    return InvalidField("acquisition.samples_per_record",
                        absl::StrCat("is ", asked.samples, "; a raw file needs it, ", kLeastSamples,
                                     " to ", kMostSamples));
  }
  if (asked.header_bytes > static_cast<uint64_t>(size)) {
    return InvalidField("replay.header_bytes", absl::StrCat("is ", asked.header_bytes, "; '",
                                                            file->name, "' has ", size, " bytes"));
  }
  file->samples = asked.samples;
  file->raw_type = asked.raw_type;
  file->data_offset = static_cast<int64_t>(asked.header_bytes);
  return absl::OkStatus();
}

// "1400 bytes (700 samples of u16)"
std::string RecordText(const RecordFile& file) {
  return absl::StrCat(
      file.record_bytes, " bytes (", file.samples, " samples of ",
      file.packing == math::Packing::kNone ? Info(file.raw_type).name : "12 bits, packed",
      file.channels > 1 ? absl::StrCat(" in ", file.channels, " channels") : "", ")");
}

// Counts the records and the bytes left over.
absl::Status CountRecords(int64_t bytes, bool allow_partial, RecordFile* file) {
  constexpr int64_t kLongestHeader = 1 << 20;
  const int64_t header = (file->data_offset + bytes) % file->record_bytes;  // whole records follow
  file->records = bytes / file->record_bytes;
  file->partial_bytes = bytes % file->record_bytes;
  const std::string holds = absl::StrCat(
      "'", file->name, "' holds ", bytes, " bytes",
      file->data_offset > 0 ? absl::StrCat(" behind its header of ", file->data_offset) : "");
  if (file->records == 0)
    return InvalidField(kField, absl::StrCat(holds, "; a record has ", RecordText(*file)));
  if (file->partial_bytes == 0 || allow_partial) return absl::OkStatus();
  std::string why = ": is the type or the number of samples another one";
  if (!file->is_npy && header <= kLongestHeader) {
    absl::StrAppend(&why,
                    header == 0 ? ", is there no header (replay.header_bytes = "
                                : ", is there a header (replay.header_bytes = ",
                    header, ")");
  }
  absl::StrAppend(&why,
                  ", or was the file cut off (replay.allow_partial leaves the last record out)?");
  return InvalidField(
      kField, absl::StrCat(holds, ": ", file->records, " records of ", RecordText(*file), " and ",
                           file->partial_bytes, " bytes more. Allowed are whole records", why));
}

}  // namespace

absl::StatusOr<RecordFile> OpenRecords(UniqueFd fd, const std::string& name, bool is_npy,
                                       const AskedRecords& asked) {
  RecordFile file{.fd = std::move(fd),
                  .name = name,
                  .is_npy = is_npy,
                  .channels = asked.channels,
                  .packing = asked.packing,
                  .adc_bits = asked.adc_bits};
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return CannotRead(name, errno);
  if (!S_ISREG(info.st_mode))
    return InvalidField(kField, absl::StrCat("'", name, "' is no regular file"));
  if (file.is_npy && asked.header_bytes != 0) {
    return InvalidField(
        "replay.header_bytes",
        absl::StrCat("is ", asked.header_bytes,
                     "; allowed is 0: an .npy file says itself where its records begin"));
  }
  if (!file.is_npy) OCTAVO_RETURN_IF_ERROR(CheckKind(asked, file));
  OCTAVO_RETURN_IF_ERROR(file.is_npy ? TakeHeader(asked, info.st_size, &file)
                                     : TakeRequest(asked, info.st_size, &file));
  file.record_bytes =
      math::PackedBytes(file.packing, file.samples * file.channels, SizeOf(file.raw_type));
  OCTAVO_RETURN_IF_ERROR(CountRecords(info.st_size - file.data_offset, asked.allow_partial, &file));
  return file;
}

absl::StatusOr<std::vector<std::string>> DoubtsOf(const RecordFile& file) {
  constexpr int64_t kEnough = 1 << 20;
  std::vector<std::string> doubts;
  if (file.missing_bytes > 0) {
    doubts.push_back(absl::StrCat("The file was cut off: its header says ", file.missing_bytes,
                                  " bytes more, ", file.missing_bytes / file.record_bytes,
                                  " whole records of them are missing."));
  }
  if (file.partial_bytes > 0) {
    doubts.push_back(absl::StrCat("The file's last record is not whole: ", file.partial_bytes,
                                  " bytes of ", file.record_bytes, " are left out."));
  }
  OCTAVO_ASSIGN_OR_RETURN(
      const std::string beginning,
      ReadFrom(file, file.data_offset, std::min(file.records * file.record_bytes, kEnough)));
  for (std::string& doubt : FindRecordDoubts(beginning, {.raw_type = file.raw_type,
                                                        .packing = file.packing,
                                                        .samples = file.samples * file.channels,
                                                        .channels = file.channels,
                                                        .adc_bits = file.adc_bits,
                                                        .described = file.is_npy})) {
    doubts.push_back(std::move(doubt));
  }
  return doubts;
}

std::string ShapeDoubt(const std::vector<int64_t>& shape, const RasterOrder& raster) {
  if (shape.size() < 2 || shape.size() > 3) return "";
  const int64_t ascans = shape.back(), bscans = shape[shape.size() - 2];
  // B-scans of several volumes may stand in one row.
  const bool of_volume = shape.size() == 3 || raster.volumes == 1;
  const bool fits_ascans = ascans == raster.ascans || ascans == raster.ascans + raster.flyback;
  const bool fits_bscans = bscans == raster.bscans || !of_volume || raster.volume_flyback > 0;
  if (fits_ascans && fits_bscans) return "";
  const bool exchanged = ascans == raster.bscans && bscans == raster.ascans;
  return absl::StrCat("The file's own shape is ", absl::StrJoin(shape, " x "),
                      " records, B-scans of ", ascans, " A-scans; the pattern has ", raster.bscans,
                      " B-scans of ", raster.ascans, " A-scans",
                      exchanged ? ": are bscans_per_volume and ascans_per_bscan exchanged?" : ".");
}

absl::StatusOr<bool> FirstRecordDiffers(const RecordFile& file) {
  constexpr int64_t kLookedAt = 4;
  if (file.is_npy || file.records < kLookedAt) return false;
  OCTAVO_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadFrom(file, file.data_offset, kLookedAt * file.record_bytes));
  const auto size = static_cast<size_t>(file.record_bytes);
  if (bytes.size() < kLookedAt * size) return false;
  // The distance of two records, computed from the upper bytes of their samples.
  const size_t stride =
      file.packing != math::Packing::kNone ? 1 : static_cast<size_t>(SizeOf(file.raw_type));
  const auto apart = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t i = stride - 1; i < size; i += stride) {
      sum += std::abs(static_cast<double>(static_cast<uint8_t>(bytes[a * size + i])) -
                      static_cast<double>(static_cast<uint8_t>(bytes[b * size + i])));
    }
    return sum;
  };
  double others = 0, first = 1e300;
  for (size_t a = 1; a < kLookedAt; ++a) {
    first = std::min(first, apart(0, a));
    for (size_t b = a + 1; b < kLookedAt; ++b) others = std::max(others, apart(a, b));
  }
  return first > 3 * others && first > 0;
}

}  // namespace octavo::storage
