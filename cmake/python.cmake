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
	RLV_PYTHON_REMOTE=$<BOOL:${have_remote}> RLV_PYTHON_LIBPMEM=$<BOOL:${PMEM_FOUND}>)
set_target_properties(relive_python PROPERTIES PREFIX "" OUTPUT_NAME _core SUFFIX .abi3.so
	LIBRARY_OUTPUT_DIRECTORY ${package} INSTALL_RPATH "\$ORIGIN/${CMAKE_INSTALL_LIBDIR}")

file(GLOB python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/relive
	${PROJECT_SOURCE_DIR}/python/relive/*)
list(REMOVE_ITEM python_files __pycache__)
file(MAKE_DIRECTORY ${package})
foreach(file ${python_files})
	file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/relive/${file} ${package}/${file} SYMBOLIC)
endforeach()

if(BUILD_TESTING AND COMMAND rlv_add_test)
	file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/tests/test_*.py)
	foreach(test ${tests})
		get_filename_component(name ${test} NAME_WE)
		rlv_add_test(python.${name} python ${PROJECT_SOURCE_DIR}/python/tests/run
			${PROJECT_BINARY_DIR} ${test})
	endforeach()
endif()

# --- The wheel: component `python`, as pyproject.toml asks for it --------------------------------
set(parts relive_python relive)
install(TARGETS relive_python LIBRARY DESTINATION relive COMPONENT python EXCLUDE_FROM_ALL)
# By its soname only: a wheel has no links.
install(PROGRAMS $<TARGET_FILE:relive> DESTINATION relive/${CMAKE_INSTALL_LIBDIR}
	RENAME $<TARGET_SONAME_FILE_NAME:relive> COMPONENT python EXCLUDE_FROM_ALL)
foreach(program relive_command relive-memnode relive-metad relive-poold)
	if(TARGET ${program})
		list(APPEND parts ${program})
		install(TARGETS ${program} RUNTIME DESTINATION relive/bin COMPONENT python EXCLUDE_FROM_ALL)
	endif()
endforeach()
foreach(module relive_verbs relive_ofi)
	if(TARGET ${module})
		list(APPEND parts ${module})
		install(TARGETS ${module} LIBRARY DESTINATION relive/${CMAKE_INSTALL_LIBDIR}
			COMPONENT python EXCLUDE_FROM_ALL)
	endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/tests/data/cartpole.rlvt ${PROJECT_SOURCE_DIR}/tests/data/pong.rlvt
	${PROJECT_SOURCE_DIR}/tests/data/pool-traces.txt
	DESTINATION relive/share/relive COMPONENT python EXCLUDE_FROM_ALL)
add_custom_target(relive_wheel DEPENDS ${parts})
