# The Python package: extension relive._core over the stable ABI, so one file serves CPython 3.11 and
# later. In a build folder it lies in python/relive/ beside links to the Python files; the wheel
# (pyproject.toml) takes it together with librelive, the command and the daemons where they are built.

find_package(Python3 3.11 COMPONENTS Interpreter Development.Module)
if(NOT Python3_Development.Module_FOUND)
	message(STATUS "no Python package: python3-dev (3.11 or later) is missing")
	return()
endif()

rlv_sources(python_src python/src)
set(package ${PROJECT_BINARY_DIR}/python/relive)
add_library(relive_python MODULE ${python_src})
target_link_libraries(relive_python PRIVATE relive relive_flags Threads::Threads)
target_include_directories(relive_python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_compile_definitions(relive_python PRIVATE Py_LIMITED_API=0x030b0000
	RLV_PYTHON_REMOTE=1 RLV_PYTHON_LIBPMEM=$<BOOL:${PMEM_FOUND}>)
set_target_properties(relive_python PROPERTIES PREFIX "" OUTPUT_NAME _core SUFFIX .abi3.so
	LIBRARY_OUTPUT_DIRECTORY ${package} INSTALL_RPATH "\$ORIGIN/lib")

file(GLOB python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/relive
	${PROJECT_SOURCE_DIR}/python/relive/*)
list(REMOVE_ITEM python_files __pycache__)
file(MAKE_DIRECTORY ${package})
foreach(file ${python_files})
	file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/relive/${file} ${package}/${file} SYMBOLIC)
endforeach()
