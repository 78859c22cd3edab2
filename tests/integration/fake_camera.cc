// A GigE Vision camera for tests, on 127.0.0.1: Aravis' fake camera, plus the 12-bit formats and an
// image that encodes its frame, line and exposure. The program prints one line when it listens. It
// ends when standard input ends (or when it is killed).
//   fake_camera SERIAL LOST   packets lost per thousand
// Pixel j of line y of frame id: 1000 + id mod 1000 + A cos(2 pi k j / width), k = 2 + y mod 30, A
// = exposure in us / 50; Mono8: a sixteenth of it.

#include <arv.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

void Fill(ArvBuffer* buffer, void*, guint32 exposure_us, guint32, ArvPixelFormat format) {
  size_t size = 0;
  auto* out = static_cast<unsigned char*>(const_cast<void*>(arv_buffer_get_data(buffer, &size)));
  const int width = arv_buffer_get_image_width(buffer),
            height = arv_buffer_get_image_height(buffer);
  const double offset = 1000 + static_cast<double>(arv_buffer_get_frame_id(buffer) % 1000),
               amplitude = exposure_us / 50.0;
  std::vector<int> line(static_cast<size_t>(width));
  for (int y = 0; y < height; ++y) {
    for (int j = 0; j < width; ++j) {
      line[static_cast<size_t>(j)] = static_cast<int>(std::lround(
          offset + amplitude * std::cos(2 * std::numbers::pi * (2 + y % 30) * j / width)));
    }
    for (size_t j = 0; j < line.size(); ++j) {
      const int v = line[j];
      switch (format) {
        case ARV_PIXEL_FORMAT_MONO_8: *out++ = static_cast<unsigned char>(v / 16); break;
        // High bits of both pixels, the low bits between them.
        case ARV_PIXEL_FORMAT_MONO_12_PACKED:
          if (j % 2 == 0) {
            out[0] = static_cast<unsigned char>(v >> 4);
            out[1] = static_cast<unsigned char>(v & 15);
          } else {
            out[1] = static_cast<unsigned char>(out[1] | (v & 15) << 4);
            out[2] = static_cast<unsigned char>(v >> 4);
            out += 3;
          }
          break;
        case 0x010c0047:  // Mono12p: 12 bits after 12 bits
          if (j % 2 == 0) {
            out[0] = static_cast<unsigned char>(v & 255);
            out[1] = static_cast<unsigned char>(v >> 8);
          } else {
            out[1] = static_cast<unsigned char>(out[1] | (v & 15) << 4);
            out[2] = static_cast<unsigned char>(v >> 4);
            out += 3;
          }
          break;
        default:  // Mono12, Mono16: two bytes, low first
          *out++ = static_cast<unsigned char>(v & 255);
          *out++ = static_cast<unsigned char>(v >> 8);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  // The fake camera's description, with the additional formats.
  size_t size = 0;
  ArvFakeCamera* plain = arv_fake_camera_new("plain");
  std::string xml(arv_fake_camera_get_genicam_xml(plain, &size));
  g_object_unref(plain);
  const std::string mono16 = "<EnumEntry Name=\"Mono16\"";
  const size_t at = xml.find(mono16);
  if (at == std::string::npos) return 4;
  const auto entry = [](const char* name, unsigned value) {
    return std::string("<EnumEntry Name=\"") + name + "\" NameSpace=\"Standard\"><Value>" +
           std::to_string(value) + "</Value></EnumEntry>\n";
  };
  xml.insert(at, entry("Mono12", ARV_PIXEL_FORMAT_MONO_12) +
                     entry("Mono12Packed", ARV_PIXEL_FORMAT_MONO_12_PACKED) +
                     entry("Mono12p", 0x010c0047));
  char path[] = "/tmp/octavo-fake-camera-XXXXXX";
  const int fd = ::mkstemp(path);
  if (fd < 0 || ::write(fd, xml.data(), xml.size()) != static_cast<ssize_t>(xml.size())) return 4;
  ::close(fd);
  ArvGvFakeCamera* camera = arv_gv_fake_camera_new_full("127.0.0.1", argv[1], path);
  const bool running = camera != nullptr && arv_gv_fake_camera_is_running(camera);
  if (running) {
    g_object_set(camera, "gvsp-lost-ratio", std::atof(argv[2]) / 1000.0, nullptr);
    ArvFakeCamera* fake = arv_gv_fake_camera_get_fake_camera(camera);
    arv_fake_camera_set_fill_pattern(fake, Fill, nullptr);
    arv_fake_camera_set_trigger_frequency(fake, 100);
  }
  ::unlink(path);
  if (!running) {
    std::fprintf(stderr, "fake_camera: cannot listen on 127.0.0.1 port 3956\n");
    return 3;
  }
  std::printf("listening\n");
  std::fflush(stdout);
  char byte = 0;
  while (::read(0, &byte, 1) > 0) {
  }
  g_object_unref(camera);
  return 0;
}
