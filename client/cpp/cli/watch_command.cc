#include <algorithm>
#include <cctype>
#include <cmath>
#include <complex>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "octavo/v1/stream.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/half.h"
#include "client/cpp/cli/picture_flags.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/wait_teller.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

struct WatchFlags {
  std::string parent, product = "mip", axis, png_dir, jpeg_dir, webp_dir, npy_dir;
  int64_t count = 0, index = -1;
  std::vector<int64_t> slab;  // begin and end, or none
  double rate = 10;
  bool no_preview = false, corrected = false;
  PictureFlags picture;

  bool line() const { return product == "spectrum" || product == "ascan"; }

  bool files() const { return !directory().empty(); }
  const std::string& directory() const {
    return !png_dir.empty() ? png_dir : !jpeg_dir.empty() ? jpeg_dir : webp_dir;
  }
  v1::Encoding encoding() const {
    return !png_dir.empty()    ? v1::ENCODING_PNG
           : !jpeg_dir.empty() ? v1::ENCODING_JPEG
                               : v1::ENCODING_WEBP;
  }
  const char* ending() const {
    return !png_dir.empty() ? "png" : !jpeg_dir.empty() ? "jpg" : "webp";
  }
};

// Returns an empty string or the error.
std::string WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  return out ? "" : path + ": cannot write";
}

template <class T>
double Number(T sample) {
  return static_cast<double>(sample);
}
double Number(std::complex<float> z) { return static_cast<double>(std::abs(z)); }

// The values shown as black and white, as the server chooses them for files
// (octavo.v1.ImageOptions). In a live preview the lowest number marks pixels that no record has
// reached.
std::pair<double, double> ContrastOf(const v1::Frame& head, const WatchFlags& flags,
                                     const std::vector<double>& values) {
  if (!flags.picture.levels.empty()) {
    const auto stored = [&](float value) {
      return (static_cast<double>(value) - head.value_offset()) / head.value_step();
    };
    return {stored(flags.picture.levels[0]), stored(flags.picture.levels[1])};
  }
  if (flags.picture.display) return {head.display_levels().lo(), head.display_levels().hi()};
  const double lowest = head.dtype() == v1::DTYPE_I8 ? -128 : 0;
  const bool fill =
      !head.complete() && (head.dtype() == v1::DTYPE_U8 || head.dtype() == v1::DTYPE_I8 ||
                           head.dtype() == v1::DTYPE_U16);
  std::vector<double> some;
  std::copy_if(values.begin(), values.end(), std::back_inserter(some),
               [&](double v) { return std::isfinite(v) && !(fill && v == lowest); });
  if (some.empty()) return {0, 1};
  std::sort(some.begin(), some.end());
  const auto at = [&](double percent) {
    return some[static_cast<size_t>(percent / 100 * static_cast<double>(some.size() - 1) + 0.5)];
  };
  const std::vector<float>& asked = flags.picture.percentiles;
  return asked.empty()
             ? std::pair{at(1), at(99.8)}
             : std::pair{at(static_cast<double>(asked[0])), at(static_cast<double>(asked[1]))};
}

// NaN is black.
Grey ToGrey(const v1::Frame& head, const std::string& data, const WatchFlags& flags) {
  Grey image{.rows = head.shape(0), .columns = head.shape(1), .pixels = {}};
  const size_t count = static_cast<size_t>(image.rows * image.columns);
  std::vector<double> values(count, NAN);
  const auto convert = [&](auto sample) {
    for (size_t i = 0; i < count && (i + 1) * sizeof sample <= data.size(); ++i) {
      std::memcpy(&sample, data.data() + i * sizeof sample, sizeof sample);
      values[i] = Number(sample);
    }
  };
  switch (head.dtype()) {
    case v1::DTYPE_U8: convert(uint8_t{}); break;
    case v1::DTYPE_I8: convert(int8_t{}); break;
    case v1::DTYPE_U16: convert(uint16_t{}); break;
    case v1::DTYPE_F16: convert(Half{}); break;
    case v1::DTYPE_C64: convert(std::complex<float>{}); break;
    default: convert(float{}); break;
  }
  const auto [lo, hi] = ContrastOf(head, flags, values);
  for (const double value : values) {
    const double v = (value - lo) * 255 / std::max(hi - lo, 1e-30);
    image.pixels.push_back(v > 0 ? static_cast<uint8_t>(std::min(v + 0.5, 255.0)) : 0);
  }
  return image;
}

Grey Transposed(const Grey& image) {
  Grey out{.rows = image.columns,
           .columns = image.rows,
           .pixels = std::vector<uint8_t>(image.pixels.size())};
  for (int64_t r = 0; r < image.rows; ++r) {
    for (int64_t c = 0; c < image.columns; ++c)
      out.pixels[static_cast<size_t>(c * image.rows + r)] =
          image.pixels[static_cast<size_t>(r * image.columns + c)];
  }
  return out;
}

// The dtype as NumPy writes it.
const char* NumpyOf(v1::Dtype dtype) {
  switch (dtype) {
    case v1::DTYPE_U8: return "|u1";
    case v1::DTYPE_I8: return "|i1";
    case v1::DTYPE_U16: return "<u2";
    case v1::DTYPE_I16: return "<i2";
    case v1::DTYPE_F16: return "<f2";
    case v1::DTYPE_C64: return "<c8";
    default: return "<f4";
  }
}

// The frame's array as a .npy file.
std::string NpyOf(const v1::Frame& head, const std::string& data) {
  std::string shape;
  for (const int64_t extent : head.shape()) absl::StrAppend(&shape, extent, ",");
  std::string header = absl::StrCat("{'descr': '", NumpyOf(head.dtype()),
                                    "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr size_t kPreamble = 10, kAlignment = 64;
  header.append(kAlignment - 1 - (kPreamble + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 255);
  file += static_cast<char>(header.size() >> 8);
  return file + header + data;
}

// "record 96 (y 1, x 32)  minimum 12  maximum 4095  saturated 3 (at 1017 1018 1019)".
std::string DescribeRecord(const v1::Frame& head) {
  const v1::FrameRecord& record = head.record();
  std::string text = "  ";
  if (record.has_record()) absl::StrAppend(&text, "record ", record.record(), " ");
  absl::StrAppend(&text, "(y ", record.row(), ", x ", record.column(), ")");
  const auto in_values = [&](double stored) {
    return head.value_offset() + stored * head.value_step();
  };
  const std::string unit = head.unit().empty() ? "" : " " + head.unit();
  if (record.has_minimum()) absl::StrAppend(&text, "  minimum ", in_values(record.minimum()), unit);
  if (record.has_maximum()) absl::StrAppend(&text, "  maximum ", in_values(record.maximum()), unit);
  if (!record.has_saturation_high()) return text + "  saturation not known";
  absl::StrAppend(&text, "  saturated ", record.saturated_count());
  constexpr int kTold = 8;
  for (int i = 0; i < std::min(kTold, record.saturated_samples_size()); ++i)
    absl::StrAppend(&text, i == 0 ? " (at " : " ", record.saturated_samples(i));
  if (record.saturated_samples_size() > 0)
    text += record.saturated_samples_size() > kTold ? " ...)" : ")";
  return text;
}

// What a picture shows: "MIP", "BSCAN y 12", "BSCAN y in the middle".
std::string ProductOf(const v1::Frame& head, const WatchFlags& flags) {
  std::string text = ShortName(head.product());
  if (head.product() != v1::PRODUCT_BSCAN) return text;
  const char* axis = head.axis() == v1::AXIS_X ? "x" : head.axis() == v1::AXIS_Y ? "y" : "z";
  return text + " " + axis + " " +
         (flags.index >= 0 ? std::to_string(flags.index) : "in the middle");
}

void Watch(Session& session, const WatchFlags& flags) {
  v1::SubscribeRequest request;
  request.set_parent(flags.parent);
  request.add_products(flags.product == "angiogram"  ? v1::PRODUCT_ANGIOGRAM
                       : flags.product == "spectrum" ? v1::PRODUCT_SPECTRUM
                       : flags.product == "ascan"    ? v1::PRODUCT_ASCAN
                       : flags.product == "aip"      ? v1::PRODUCT_AIP
                       : flags.product == "bscan"    ? v1::PRODUCT_BSCAN
                                                     : v1::PRODUCT_MIP);
  if (!flags.axis.empty())
    request.set_axis(flags.axis == "x" ? v1::AXIS_X : flags.axis == "y" ? v1::AXIS_Y : v1::AXIS_Z);
  if (flags.index >= 0) request.set_index(flags.index);
  if (!flags.slab.empty()) {
    request.mutable_slab()->set_begin(flags.slab[0]);
    request.mutable_slab()->set_end(flags.slab[1]);
  }
  if (flags.corrected) request.set_spectrum(v1::SPECTRUM_FORM_CORRECTED);
  request.set_max_rate_hz(flags.rate);
  request.set_preview(!flags.no_preview);
  if (flags.files()) {
    request.set_encoding(flags.encoding());
    flags.picture.Fill(request.mutable_image());
  }
  grpc::ClientContext context;
  auto reader = v1::StreamService::NewStub(session.channel())->Subscribe(&context, request);
  WaitTeller waiting(session, flags.parent);
  v1::SubscribeResponse part;
  v1::Frame head;
  std::string data;
  int64_t shown = 0, lines = 0;
  const std::string& directory = flags.npy_dir.empty() ? flags.directory() : flags.npy_dir;
  if (std::error_code error;
      !directory.empty() && (std::filesystem::create_directories(directory, error), error)) {
    std::cerr << "octavo: " << directory << ": " << error.message() << "\n";
    session.exit_code = kFailed;
    context.TryCancel();
  }
  while (reader->Read(&part)) {
    if (part.has_frame()) {
      head = part.frame();
      data.clear();
    }
    data += part.data();
    waiting.Came();
    if (data.size() < part.total_bytes()) continue;
    const std::string caption =
        head.parent() + "  volume " + std::to_string(head.volume_index()) + "  " +
        ProductOf(head, flags) + "  picture " + std::to_string(head.sequence()) +
        (head.complete() ? "" : "  (live)") + (head.has_record() ? DescribeRecord(head) : "") +
        (head.dropped_before() > 0 ? "  " + std::to_string(head.dropped_before()) + " left out"
                                   : "");
    if (session.json) {
      PrintJson(head);
    } else if (directory.empty() && flags.line()) {
      std::cout << caption << "\n" << std::flush;
    } else if (directory.empty()) {
      // Depth runs down the screen, as usual.
      Grey image = ToGrey(head, data, flags);
      if (head.axes_size() == 2 && head.axes(1) == "z") image = Transposed(image);
      const bool colour = IsTerminal();
      const std::string text =
          RenderImage(image, std::min(TerminalColumns(), colour ? 128 : 80), colour);
      if (colour && lines > 0) std::cout << "\x1b[" << lines << "A";
      std::cout << text << caption << (colour ? "\x1b[K\n" : "\n") << std::flush;
      lines = std::count(text.begin(), text.end(), '\n') + 1;
    }
    if (!directory.empty()) {
      char name[64];
      std::snprintf(name, sizeof name, "/%s_%06llu.%s", flags.product.c_str(),
                    static_cast<unsigned long long>(head.sequence()),
                    flags.npy_dir.empty() ? flags.ending() : "npy");
      const std::string problem =
          WriteFile(directory + name, flags.npy_dir.empty() ? data : NpyOf(head, data));
      if (!problem.empty()) {
        std::cerr << "octavo: " << problem << "\n";
        session.exit_code = kFailed;
        context.TryCancel();
        break;
      }
      if (!session.json) std::cout << directory << name << "  " << caption << "\n" << std::flush;
    }
    if (++shown == flags.count) {
      context.TryCancel();
      break;
    }
  }
  while (reader->Read(&part)) {
  }
  const grpc::Status status = reader->Finish();
  if (status.error_code() != grpc::StatusCode::CANCELLED || flags.count == 0)
    Check(session, status);
}

}  // namespace

void AddWatchCommand(CLI::App& app, Session& session) {
  auto flags = std::make_shared<WatchFlags>();
  auto* watch =
      app.add_subcommand("watch", "live images of running scans, in the terminal or as files");
  watch->add_option("--parent", flags->parent, "scans/... or jobs/... (default: all)")
      ->check(ScanOrJobName());
  watch->add_option("--product", flags->product, "mip | aip | bscan | angiogram | spectrum | ascan")
      ->check(OneOf({"mip", "aip", "bscan", "angiogram", "spectrum", "ascan"}));
  watch->add_flag("--corrected", flags->corrected,
                  "spectra as the transform gets them: less the background, k-linearised, times "
                  "the window");
  watch
      ->add_option("--axis", flags->axis,
                   "x | y | z (default: z, B-scans y, slices of a tomography job z)")
      ->check(OneOf({"x", "y", "z"}));
  watch
      ->add_option("--index", flags->index,
                   "number of the B-scan, from 0 on (default: the middle one); of spectra and "
                   "A-scans the column x (default: any)")
      ->check(Natural());
  watch
      ->add_option("--slab", flags->slab,
                   "BEGIN END or BEGIN,END: mip of scans: only these depths of complete volumes, "
                   "END excluded")
      ->delimiter(',')
      ->expected(2)
      ->check(Natural());
  auto* png = watch->add_option("--png-dir", flags->png_dir, "write PNG files here instead");
  auto* files =
      watch->add_option_group("files", "how --png-dir, --jpeg-dir and --webp-dir show the values");
  auto* jpeg = watch->add_option("--jpeg-dir", flags->jpeg_dir, "write JPEG files here instead")
                   ->excludes(png);
  auto* webp = watch->add_option("--webp-dir", flags->webp_dir, "write WebP files here instead")
                   ->excludes(png)
                   ->excludes(jpeg);
  watch->add_option("--npy-dir", flags->npy_dir, "write the arrays as .npy files here instead")
      ->excludes(png)
      ->excludes(jpeg)
      ->excludes(webp);
  flags->picture.AddContrastTo(watch);
  flags->picture.AddLookTo(files);
  watch->add_option("--count", flags->count, "end after so many images; 0 = never")
      ->check(Natural());
  watch->add_option("--rate", flags->rate, "images per second at most; 0 = all");
  watch->add_flag("--no-preview", flags->no_preview, "completed volumes only");
  watch->callback([&session, flags, files] {
    if (files->count_all() > 0 && !flags->files())
      throw CLI::RequiresError("options of files", "--png-dir, --jpeg-dir or --webp-dir");
    if (flags->index >= 0 && flags->product != "bscan" && !flags->line())
      throw CLI::ValidationError(
          "--index",
          "is for --product bscan, spectrum and ascan; the product is " + flags->product);
    if (!flags->slab.empty() && flags->product != "mip")
      throw CLI::ValidationError("--slab",
                                 "is for --product mip; the product is " + flags->product);
    if (flags->corrected && flags->product != "spectrum")
      throw CLI::ValidationError("--corrected",
                                 "is for --product spectrum; the product is " + flags->product);
    if (flags->line() && flags->files())
      throw CLI::ValidationError("--product", flags->product +
                                                  " gives numbers, not pictures; allowed are "
                                                  "--npy-dir and --json");
    flags->picture.Check();
    Watch(session, *flags);
  });
}

}  // namespace octavo::cli
