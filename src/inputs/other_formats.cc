// Well-known formats that are not read. They are refused by name: "damaged" would make users copy a
// good file again.
#include <array>

#include "inputs/formats.h"

namespace tuckfold {
namespace {

using namespace std::string_view_literals;

struct Other {
  std::size_t at;  // offset of the magic
  std::string_view magic, name, remedy;
};

constexpr std::string_view kNcCopy =
    "convert it with 'nccopy -k nc4 IN.nc OUT.nc', or in Python with "
    "xarray.open_dataset('IN.nc').to_netcdf('OUT.nc', engine='netcdf4'), where xarray and netCDF4 "
    "are installed";
constexpr std::string_view kXarray = "open it in Python and save netCDF-4 or .npz";
constexpr std::array kOthers = {
    Other{0, "CDF\x01"sv, "netCDF-3", kNcCopy},
    Other{0, "CDF\x02"sv, "netCDF-3 (64-bit offset)", kNcCopy},
    Other{0, "CDF\x05"sv, "netCDF-3 (64-bit data)", kNcCopy},
    Other{0, "\x0e\x03\x13\x01"sv, "HDF4", "convert it with h4toh5"},
    Other{0, "GRIB"sv, "GRIB", kXarray},
    Other{0, "SIMPLE  ="sv, "FITS", kXarray},
    Other{0, "MATLAB 5.0 MAT-file"sv, "a MAT-file before version 7.3", "save it with -v7.3"},
    Other{0, "PAR1"sv, "Parquet", "save its columns with numpy.savez"},
    Other{0, "ARROW1"sv, "Arrow", "save its columns with numpy.savez"},
    Other{0, "\x28\xb5\x2f\xfd"sv, "compressed by zstd", "decompress it with 'zstd -d'"},
    Other{0, "\xfd\x37zXZ\0"sv, "compressed by xz", "decompress it with 'xz -d'"},
    Other{0, "BZh"sv, "compressed by bzip2", "decompress it with 'bzip2 -d'"},
    Other{0, "\x04\x22\x4d\x18"sv, "compressed by lz4", "decompress it with 'lz4 -d'"},
    Other{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", "unpack it first"},
    Other{0, "Rar!\x1a\x07"sv, "a RAR archive", "unpack it first"},
    Other{0, "\x1f\x9d"sv, "compressed by compress", "decompress it with 'gzip -d'"},
    Other{0, "GIF8"sv, "a GIF image", "convert it to PNG"},
    Other{8, "WEBP"sv, "a WebP image", "convert it to PNG"},
    Other{4, "ftypavif"sv, "an AVIF image", "convert it to PNG"},
    Other{4, "ftypheic"sv, "a HEIC image", "convert it to PNG"},
};

}  // namespace

void refuse_other_formats(const SourceInput& input) {
  const std::string_view text = input.text().substr(0, 64);
  for (const Other& other : kOthers) {
    if (text.size() < other.at || !text.substr(other.at).starts_with(other.magic)) continue;
    fail(Errc::Unsupported, "[source] '{}' is {}, which cannot be read; {}", input.path, other.name,
         other.remedy);
  }
}

}  // namespace tuckfold
