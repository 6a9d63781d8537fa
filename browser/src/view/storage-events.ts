/** `StorageEvent` with a `Storage` of the runtime's making as its `storageArea`, which the browser takes for none. */

import { reading } from "./entries";
import { named } from "./wrapped";

/** Where `init` stands in `initStorageEvent`'s arguments. */
const AREA = 7;

/** From now on `storage` is one, to the constructor, to `initStorageEvent` and to the events that these make. */
export function tellStorageArea(storage: Storage): void {
  const native = StorageEvent;
  const { prototype } = native;
  const told = new WeakSet<StorageEvent>();

  window.StorageEvent = new Proxy(native, {
    construct(_, given: [string, StorageEventInit?], made: Function) {
      const [type, init] = given;
      // The other members are read as ever, from wherever they come.
      const whole = Object(init) === init ? Object.create(init as object, { storageArea: { get: area } }) as StorageEventInit : init;
      let ours = false;
      function area(): Storage | null | undefined {
        const { storageArea } = init!;
        ours = storageArea === storage;
        return ours ? null : storageArea;
      }
      const event = Reflect.construct(native, given.length > 1 ? [type, whole] : given, made) as StorageEvent;
      if (ours) told.add(event);
      return event;
    },
  });
  prototype.constructor = window.StorageEvent;
  const { initStorageEvent } = prototype;
  prototype.initStorageEvent = named(initStorageEvent, function (this: StorageEvent, ...given: Parameters<typeof initStorageEvent>) {
    const ours = given[AREA] === storage;
    if (ours) given[AREA] = null;
    initStorageEvent.apply(this, given);
    // It does nothing while the event is on its way (DOM, 2.2).
    if (!this.eventPhase) told[ours ? "add" : "delete"](this);
  });
  reading(prototype, "storageArea", (event, area) => (told.has(event) ? storage : area));
}
