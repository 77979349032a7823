import { microvmOfProbe, noteFinding, placeOfProbe } from '../../models/tools/tool-probes.ts'
import { permanently } from '../failures.ts'

/** Activities of probes of tools: short reads and writes of MongoDB. `image`: of microVMs whose tool names none. */
export const makeToolProbeActivities = ({ image }: { image: string }) => ({
  microvmOfProbe: (id: string): Promise<object> => permanently(() => microvmOfProbe(id, image)),
  placeOfProbe: (id: string, microvmId: string): Promise<string> =>
    permanently(() => placeOfProbe(id, microvmId)),
  noteFinding,
})

export type ToolProbeActivities = ReturnType<typeof makeToolProbeActivities>
