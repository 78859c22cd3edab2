// The parts of a mosaic at one size: sections stacked, their overlaps and brightness found; tiles
// resampled, registered and stitched. For each the seconds, the bytes that have to be read and
// written at least (every array once, and each candidate of a search its overlap), and the rate,
// beside the rate of a copy on the same device in the same run. Every timed output was poisoned
// before; voxels at random places are compared with a plain loop in double precision.
//   bench_mosaic [--backend host|cuda] [--size N] [--seconds S] [--seed N]

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"

#include "gpu/array/array_ops.h"
#include "gpu/backend/open_devices.h"
#include "gpu/mosaic/register_tiles.h"
#include "gpu/mosaic/resample_tiles.h"
#include "gpu/mosaic/stack_sections.h"
#include "gpu/mosaic/stitch_tiles.h"
#include "gpu/mosaic/z_overlap.h"
#include "tests/bench/bench_basics.h"

namespace octavo::bench {
namespace {

constexpr int kChecked = 500;  // voxels of each output
constexpr size_t kSections = 4;

struct Bench {
  std::string backend = "host";
  int64_t size = 512;  // of a plane; a section has a quarter of it as planes
  double seconds = 0.5;
  uint64_t seed = std::random_device{}();

  OpenedDevices opened;
  Device* device = nullptr;
  Stream stream;
  double copy = 0;
  std::mt19937_64 random;

  void Run() {
    opened = Take(OpenDevices(backend));
    device = opened.devices[0].get();
    stream = Take(device->NewStream(StreamPriority::kNormal));
    random.seed(seed);
    for (const Scalar scalar : {Scalar::kF32, Scalar::kU16}) {
      const ArrayType type{.scalar = scalar, .dims = {size / 4, size, size}};
      std::vector<DeviceBuffer> sections;
      std::vector<std::vector<char>> host;
      for (size_t i = 0; i < kSections; ++i) {
        host.push_back(Numbers(type));
        sections.push_back(Take(device->Allocate(type.bytes())));
        Ok(device->CopyToDevice(stream.ref(), sections.back().data(), host.back().data(),
                                type.bytes()));
      }
      Ok(stream.ref().Synchronize());
      copy = CopyRate(sections[0], type);
      Stack(type, sections, host);
      Search(type, sections);
      Corrections(type);
      Tiles(type, sections[0]);
    }
  }

  /// Smooth along x, so that the overlaps of tiles look like pictures.
  std::vector<char> Numbers(const ArrayType& type) {
    std::vector<char> out(static_cast<size_t>(type.bytes()));
    double value = 1000;
    for (int64_t i = 0; i < type.numbers(); ++i) {
      value = 0.9 * value + 0.1 * static_cast<double>(random() % 4096 + 1);
      math::Store(type.scalar, out.data(), i, {value, 0});
    }
    return out;
  }
  // Bytes read and written in a second.
  double CopyRate(const DeviceBuffer& in, const ArrayType& type) {
    const DeviceBuffer to = Take(device->Allocate(type.bytes()));
    return 2 * static_cast<double>(type.bytes()) / MedianSeconds(seconds, [&] {
             Ok(device->CopyOnDevice(stream.ref(), to.data(), in.data(), type.bytes()));
             Ok(stream.ref().Synchronize());
           });
  }
  void Print(const char* what, const ArrayType& type, double each, double bytes) const {
    std::printf(
        "{\"bench\": \"mosaic\", \"backend\": \"%s\", \"device\": \"%s\", \"operation\": \"%s\", "
        "\"type\": \"%s\", \"size\": %lld, \"seconds\": %.6g, \"bytes\": %.0f, "
        "\"gb_per_s\": %.1f, \"copy_gb_per_s\": %.1f, \"of_copy\": %.3f}\n",
        backend.c_str(), device->info().model.c_str(), what, octavo::NameOf(type.scalar),
        static_cast<long long>(size), each, bytes, bytes / each / 1e9, copy / 1e9,
        bytes / each / copy);
    std::fflush(stdout);
  }
  /// The output of a program; how long it takes goes to `each`.
  std::vector<char> Time(const SlicedProgram& program, const std::vector<const void*>& inputs,
                         double* each) {
    const auto run = Take(program.Prepare(*device, nullptr));
    const int64_t bytes = program.out().bytes();
    const DeviceBuffer to = Take(device->Allocate(bytes));
    Ok(device->Fill(stream.ref(), to.data(), bytes / 4 * 4, 0xA5A5A5A5u));
    *each = MedianSeconds(seconds, [&] {
      Ok(run->Run(stream.ref(), 0, program.parts(), inputs, to.data()));
      Ok(stream.ref().Synchronize());
    });
    return Fetch(to, bytes);
  }
  std::vector<char> Fetch(const DeviceBuffer& from, int64_t bytes) {
    std::vector<char> out(static_cast<size_t>(bytes));
    Ok(device->CopyToHost(stream.ref(), out.data(), from.data(), bytes));
    Ok(stream.ref().Synchronize());
    return out;
  }
  static std::vector<const void*> Pointers(const std::vector<DeviceBuffer>& of,
                                           const std::vector<size_t>& which) {
    std::vector<const void*> out;
    for (const size_t i : which) out.push_back(of[i].data());
    return out;
  }

  void Stack(const ArrayType& type, const std::vector<DeviceBuffer>& sections,
             const std::vector<std::vector<char>>& host) {
    const std::vector<ArrayType> types(kSections, type);
    const std::vector<size_t> all = {0, 1, 2, 3};
    const int64_t planes = type.dims[0], overlap = planes / 4;
    for (const bool fine : {false, true}) {
      StackSectionsSpec spec{.spacing_um = {{1, 1, 1}},
                             .whole_voxels = !fine,
                             .overlap = std::vector<int64_t>(kSections - 1, overlap),
                             .match_intensity = fine,
                             .gain_least = 1,  // measured, and not applied: the check need not know
                             .gain_most = 1,
                             .blend = fine ? SectionBlend::kHann : SectionBlend::kLater};
      for (size_t i = 0; i < kSections; ++i)
        spec.position_um.push_back({{0, i % 2 == 0 ? 0 : 2.25, 1.5 * static_cast<double>(i)}});
      double measuring = 0;
      int64_t measured = 0;
      SectionStack stack = Take(SectionStack::Plan(spec, types));
      Ok(stack.Measure([&](const SlicedProgram& program,
                           const std::vector<size_t>& which) -> absl::StatusOr<std::vector<char>> {
        double each = 0;
        std::vector<char> out = Time(program, Pointers(sections, which), &each);
        measuring += each;
        ++measured;
        return out;
      }));
      if (measured > 0) {
        // Each round reads what two sections have in common.
        const double bytes = static_cast<double>(measured * 2 * overlap * size * size) *
                             static_cast<double>(SizeOf(type.scalar));
        Print("match_intensity", type, measuring, bytes);
      }
      const auto program = Take(stack.Program());
      double each = 0;
      const std::vector<char> got = Time(*program, Pointers(sections, all), &each);
      CheckStack(spec, stack, type, host, program->out(), got);
      Print(fine ? "stack_hann_fractions" : "stack_whole", type, each,
            static_cast<double>(kSections * static_cast<size_t>(type.bytes())) +
                static_cast<double>(program->out().bytes()));
    }
  }

  void CheckStack(const StackSectionsSpec& spec, const SectionStack& stack, const ArrayType& type,
                  const std::vector<std::vector<char>>& host, const ArrayType& out,
                  const std::vector<char>& got) {
    for (int turn = 0; turn < kChecked; ++turn) {
      int64_t at[3];
      for (size_t d = 0; d < 3; ++d)
        at[d] = static_cast<int64_t>(random() % static_cast<uint64_t>(out.dims[d]));
      double wanted = type.scalar == Scalar::kF32 ? NAN : 0;
      bool any = false;
      for (size_t i = 0; i < kSections; ++i) {
        const StackedSection& section = stack.sections()[i];
        const int64_t z = at[0] - section.first_plane;
        double place[2];
        for (int d = 0; d < 2; ++d) {
          place[d] = static_cast<double>(at[d + 1]) - section.position_um[d + 1] +
                     stack.origin_um()[d + 1];
        }
        if (z < 0 || z >= section.planes || place[0] < 0 || place[1] < 0 ||
            place[0] > static_cast<double>(size - 1) || place[1] > static_cast<double>(size - 1))
          continue;
        double value = 0;
        for (int64_t dy = 0; dy < 2; ++dy) {
          for (int64_t dx = 0; dx < 2; ++dx) {
            const int64_t y = static_cast<int64_t>(place[0]) + dy,
                          x = static_cast<int64_t>(place[1]) + dx;
            const double weight = (1 - std::abs(place[0] - static_cast<double>(y))) *
                                  (1 - std::abs(place[1] - static_cast<double>(x)));
            if (weight <= 0) continue;
            value += weight * math::Load(type.scalar, host[i].data(), (z * size + y) * size + x).re;
          }
        }
        double weight = 1;
        if (any && spec.blend == SectionBlend::kHann) {
          weight = section.overlap == 1
                       ? 0
                       : 0.5 * (1 - std::cos(M_PI * static_cast<double>(z) /
                                             static_cast<double>(section.overlap - 1)));
        }
        wanted = any ? wanted * (1 - weight) + value * weight : value;
        any = true;
      }
      const double value =
          math::Load(out.scalar, got.data(), (at[0] * out.dims[1] + at[1]) * out.dims[2] + at[2])
              .re;
      const double off = type.scalar == Scalar::kF32 ? 1e-5 * wanted : 0.51;
      if (std::isnan(wanted) ? !std::isnan(value) : !(std::abs(value - wanted) <= off)) {
        Die(absl::StrCat("stack of ", type.Text(), " at ", at[0], ", ", at[1], ", ", at[2], " is ",
                         value, ", the model says ", wanted, " (--seed ", seed, ")"));
      }
    }
  }

  void Search(const ArrayType& type, const std::vector<DeviceBuffer>& sections) {
    const int64_t planes = type.dims[0], range = std::max<int64_t>(1, planes / 8);
    const ZOverlapSpec spec{.slicing_interval_um = static_cast<double>(planes - planes / 4),
                            .search_range_um = static_cast<double>(range),
                            .spacing_z_um = 1};
    const ZOverlap search = Take(ZOverlap::Plan(spec, type, type));
    const auto program = search.Program();
    double each = 0;
    const std::vector<char> sums = Time(*program, Pointers(sections, {0, 0}), &each);
    std::vector<double> numbers(sums.size() / sizeof(double));
    std::memcpy(numbers.data(), sums.data(), sums.size());
    const ZOverlapResult found = search.Finish(numbers);
    for (const double one : found.correlations) {
      if (!(std::abs(one) <= 1 + 1e-9)) Die(absl::StrCat("a correlation is ", one));
    }
    double voxels = 0;
    for (size_t i = 0; i < found.correlations.size(); ++i)
      voxels += static_cast<double>(found.first + static_cast<int64_t>(i));
    const auto side = static_cast<double>(size - 2 * (size / 4));
    Print("find_z_overlap", type, each,
          2 * voxels * side * side * static_cast<double>(SizeOf(type.scalar)));
  }

  /// The interface of the tissue and the illumination, of one section below a third of water.
  void Corrections(const ArrayType& type) {
    std::vector<char> section = Numbers(type);
    for (int64_t i = 0; i < type.numbers() / 3; ++i) {
      const double value = math::Load(type.scalar, section.data(), i).re;
      math::Store(type.scalar, section.data(), i, {value / 20, 0});
    }
    const DeviceBuffer array = Take(device->Allocate(type.bytes()));
    Ok(device->CopyToDevice(stream.ref(), array.data(), section.data(), type.bytes()));
    Ok(stream.ref().Synchronize());
    const std::vector<std::pair<const char*, ArrayOp>> corrections = {
        {"surface_otsu", SurfaceOp{.axis = 0}},
        {"surface_gradient", SurfaceOp{.axis = 0, .method = SurfaceMethod::kGradient}},
        {"flat_field_quadratic", FlatFieldOp{.method = FlatMethod::kQuadratic}},
        {"flat_field_basic", FlatFieldOp{.method = FlatMethod::kBasic}}};
    for (const auto& [what, op] : corrections) {
      const auto chain =
          std::make_shared<const ArrayChain>(Take(PlanChain({op}, type, {}, false, "operations")));
      const auto run = Take(ChainRun::Create(chain, *device));
      const int64_t bytes = chain->out.bytes();
      const DeviceBuffer to = Take(device->Allocate(bytes));
      Ok(device->Fill(stream.ref(), to.data(), bytes / 4 * 4, 0xFFFFFFFFu));  // NaN
      const double each = MedianSeconds(seconds, [&] {
        Ok(run->Run(stream.ref(), array.data(), {}, to.data()));
        Ok(stream.ref().Synchronize());
      });
      const std::vector<char> got = Fetch(to, bytes);
      int64_t finite = 0;
      for (int64_t i = 0; i < chain->out.numbers(); ++i)
        finite += std::isfinite(math::Load(chain->out.scalar, got.data(), i).re) ? 1 : 0;
      if (finite == 0) Die(absl::StrCat(what, " of ", type.Text(), " made nothing"));
      Print(what, type, each, static_cast<double>(type.bytes() + bytes));
    }
  }

  /// The section as a grid of tiles of a quarter of its plane.
  void Tiles(const ArrayType& type, const DeviceBuffer& array) {
    const int64_t side = size / 4;
    TileLayoutSpec layout{.kind = TileLayoutSpec::Kind::kGrid, .tile_y = side, .tile_x = side};
    std::vector<Vector3> stage;
    for (int64_t i = 0; i < 16; ++i) {
      stage.push_back(
          {{0, 0.8 * static_cast<double>(i / 4 * side), 0.8 * static_cast<double>(i % 4 * side)}});
    }
    const std::vector<const void*> inputs = {array.data()};
    const auto in = static_cast<double>(type.bytes());
    double each = 0;

    ResampledTiles made;
    for (const bool corners : {false, true}) {
      const ResampleTilesSpec spec{
          .layout = layout, .target_um = {{1.5, 1.5, 1.5}}, .corner_aligned = corners};
      const auto program = Take(PlanResample(spec, type, &made));
      const std::vector<char> got = Time(*program, inputs, &each);
      CheckTile(type, array, made, corners, program->out(), got);
      Print(corners ? "resample_corners" : "resample_centres", type, each,
            in + static_cast<double>(program->out().bytes()));
    }
    const auto registration = Take(Registration::Plan({.layout = layout, .stage_um = stage}, type));
    if (registration.joints() > 0) {  // small tiles have none
      (void)Time(*registration.Program(), inputs, &each);
      Print("register", type, each, in);
    }
    const auto stitch = Take(PlanStitch({.layout = layout, .position_um = stage}, type));
    (void)Time(*stitch, inputs, &each);
    Print("stitch", type, each, in + static_cast<double>(stitch->out().bytes()));
  }

  /// The first tile, against its resize alone.
  void CheckTile(const ArrayType& type, const DeviceBuffer& array, const ResampledTiles& made,
                 bool corners, const ArrayType& out, const std::vector<char>& got) {
    const int64_t side = size / 4;
    const auto chain = std::make_shared<const ArrayChain>(
        Take(PlanChain({CropOp{.start = {0, 0, 0}, .count = {type.dims[0], side, side}},
                        ResizeOp{.shape = {made.depth, made.tile_y, made.tile_x},
                                 .sampling = math::Sampling::kLinear,
                                 .corner_aligned = corners}},
                       type, {}, false, "operations")));
    const auto run = Take(ChainRun::Create(chain, *device));
    const DeviceBuffer to = Take(device->Allocate(chain->out.bytes()));
    Ok(run->Run(stream.ref(), array.data(), {}, to.data()));
    const std::vector<char> wanted = Fetch(to, chain->out.bytes());
    for (int64_t i = 0; i < chain->out.numbers(); ++i) {
      const int64_t z = i / (made.tile_y * made.tile_x), y = i / made.tile_x % made.tile_y,
                    x = i % made.tile_x;
      const double a = math::Load(out.scalar, got.data(), (z * out.dims[1] + y) * out.dims[2] + x)
                           .re,
                   b = math::Load(out.scalar, wanted.data(), i).re;
      if (!(std::abs(a - b) <= (type.scalar == Scalar::kF32 ? 1e-2 : 1)))
        Die(absl::StrCat("resample of ", type.Text(), " is ", a, " instead of ", b));
    }
  }
};

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) {
  octavo::bench::Bench bench;
  octavo::bench::ReadOptions(argc, argv,
                             {{"--backend", &bench.backend},
                              {"--size", &bench.size},
                              {"--seconds", &bench.seconds},
                              {"--seed", &bench.seed}});
  bench.Run();
}
