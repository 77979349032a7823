/** The sizes of a deploy server's machines. */
export const instanceTypes = {
  mini: { cpu_cores: 0.5, memory_mib: 512 },
  small: { cpu_cores: 1, memory_mib: 1024 },
  medium: { cpu_cores: 2, memory_mib: 2048 },
  large: { cpu_cores: 4, memory_mib: 4096 },
  xlarge: { cpu_cores: 8, memory_mib: 8192 },
} as const

export type InstanceType = keyof typeof instanceTypes
export const instanceTypeNames = Object.keys(instanceTypes) as [InstanceType, ...InstanceType[]]
