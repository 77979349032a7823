import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll } from '@jest/globals'
import { useLauncher } from '../../drivers/system/programs.ts'

// Drivers in tests start programs as a host worker does.

const launcher = join(process.env['KEELSON_TOOLS'] ?? '.state/tools', 'launcher/launcher')
if (existsSync(launcher)) useLauncher(launcher)
afterAll(() => useLauncher(null))
