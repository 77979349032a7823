import type { NewContainer } from '../../models/compute/containers.ts'
import type { NewMicrovm } from '../../models/compute/microvms.ts'

// What models accept of a new instance, for tests without HTTP: complete, since the API's defaults are not in models.

export const newInstance: Omit<NewMicrovm, 'name' | 'cpu_cores' | 'root_disk_gib'> = {
  tags: {},
  image: 'busybox',
  command: ['sleep', '600'],
  entrypoint: [],
  memory_mib: 32,
  restart_policy: 'always',
  log_cap_mib: 10,
  disks: [],
  ports: [],
  health_check: null,
  start: true,
  host_id: null,
  nics: [],
  config_vars: {},
}

export const newContainer = (name: string, over: Partial<NewContainer> = {}): NewContainer => ({
  ...newInstance,
  name,
  cpu_cores: 0.1,
  disk_gib: 10,
  ...over,
})
