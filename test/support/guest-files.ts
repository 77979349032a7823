import { join, resolve } from 'node:path'
import { stateFolder } from '../../config.ts'

/** The output of images/guest/build. */
export const guest = join(process.env['KEELSON_TOOLS'] ?? resolve(stateFolder(), 'tools'), 'guest')
